// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The source of the ranks of a run: threads of this process (-t), or processes, which --procs or a
// launcher has started. Every tool has the same flags and the same rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "onebit/onebit.h"

namespace onebit::perf {

struct RankSource {
  int threads = 1;
  bool is_threads_given = false;     // on the command line
  int procs = 0;                     // of --procs; 0: not given
  std::string transport;             // of --transport; empty: not given
  std::optional<int> launched_rank;  // what a launcher says this process is
  bool has_cuda = false;             // the buffers are memory of CUDA devices

  // True if this process is one rank and the others are elsewhere.
  bool is_one_rank() const { return launched_rank.has_value(); }
  // True if this process speaks for all: it prints, shows progress and writes the report.
  bool is_speaker() const { return launched_rank.value_or(0) == 0; }
};

// The transport that connects CUDA devices, be they those of threads or of processes.
inline constexpr char kTransportOfDevices[] = "nccl";

// Returns why the flags do not fit together and what would be right, or "". `set_transport` is the
// value of ONEBIT_TRANSPORT, null if it is not set.
std::string ProblemWith(const RankSource& source, const char* set_transport);

// Throws UsageError, which says how to give ranks, if neither the command line nor a launcher has:
// one rank alone would measure nothing that anybody asks for.
void RequireRanks(const RankSource& source);

// Returns the transport in use: that of the flag, else of the environment, else the default.
std::string TransportOf(const RankSource& source, const char* set_transport);

// The same with the environment of this process. Throws UsageError if the flags do not fit.
std::string CheckedTransportOf(const RankSource& source);

// Implements --procs: starts this program again as that many ranks, with the other arguments
// unchanged. Returns their exit status. The death of `expendable_rank` by SIGKILL is no failure.
int LaunchSelf(std::string_view tool, int procs, int argc, const char* const* argv,
               std::optional<int> expendable_rank = std::nullopt);

// Joins the other processes. The caller owns the handle. `transport` comes from TransportOf.
onebitResult_t JoinProcesses(const std::string& transport, onebitComm_t* comm);

}  // namespace onebit::perf
