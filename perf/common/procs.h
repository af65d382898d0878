// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a run come from: threads of this process (-t), or processes, which --procs or
// a launcher has started. Every tool has the same flags and the same rules.
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

  // This process is one rank, and the others are elsewhere.
  bool is_one_rank() const { return launched_rank.has_value(); }
  // Whether it speaks for all: prints, shows progress, writes the report.
  bool is_speaker() const { return launched_rank.value_or(0) == 0; }
};

// The transport that connects CUDA devices, those of threads and those of processes.
inline constexpr char kTransportOfDevices[] = "nccl";

// Help texts, the same everywhere.
inline constexpr char kProcsHelp[] = "ranks, each a process that is started on this host";
inline constexpr char kTransportHelp[] =
    "what carries the bytes: local for threads, ucx (the default) or mpi for processes";

// What is wrong with the flags together, and what would be right; empty if nothing is.
// `set_transport` is the value of ONEBIT_TRANSPORT, null if it is not set.
std::string ProblemWith(const RankSource& source, const char* set_transport);

// The transport in use: that of the flag, else of the environment, else the default.
std::string TransportOf(const RankSource& source, const char* set_transport);

// Does what --procs says: starts this program again, as that many ranks, with the same arguments
// but this one. Returns their exit status; that `expendable_rank` is killed is no failure.
int LaunchSelf(std::string_view tool, int procs, int argc, const char* const* argv,
               std::optional<int> expendable_rank = std::nullopt);

// Joins the other processes. The handle is the caller's. `transport` is TransportOf's.
onebitResult_t JoinProcesses(const std::string& transport, onebitComm_t* comm);

}  // namespace onebit::perf
