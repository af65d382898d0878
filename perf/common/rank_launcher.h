// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts a program N times on this host, as the ranks of one job, and waits until all have ended.
// onebit_run adds a command line to it; --procs of the tools starts the tool itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

inline constexpr int kMaxProcesses = 1024;
inline constexpr double kDefaultGraceSeconds = 10;

struct LaunchOptions {
  std::string tool;  // prefix of messages
  int processes = 1;
  std::string program;                          // a path, or a name to look for in PATH
  std::vector<std::string> arguments;           // argv, its first element included
  bool is_output_tagged = false;                // "[rank] " before each line of output
  double grace_seconds = kDefaultGraceSeconds;  // for the others after a failure
  std::optional<int> expendable_rank;           // may be killed: that is no failure of the job
  std::string preload;                          // library in front of others; empty: none
};

// Every process gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and ONEBIT_RENDEZVOUS: a file
// in a folder that only this user can enter, removed at the end; and for PyTorch's
// init_process_group MASTER_ADDR and MASTER_PORT, a free port of the loopback device. Those two, or
// an ONEBIT_RENDEZVOUS, that are already set are kept, unless this process is a rank itself. The
// variables of other launchers are not passed on. LD_PRELOAD begins with the library of `preload`.
// Rank 0 has the standard input.
//
// Returns 0, or the status of the first process that failed, 128 + signal if a signal ended it.
// Throws StartError or ToolError if not all could be started; then none is left.
int Launch(const LaunchOptions& options);

}  // namespace onebit::perf
