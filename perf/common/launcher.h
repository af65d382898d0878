// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Starts a program N times on this host, as the ranks of one job, and stays until all have ended.
// onebit_run is this and a command line; --procs of the tools is this and the tool itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace onebit::perf {

inline constexpr int kMaxProcesses = 1024;
inline constexpr double kDefaultGraceSeconds = 10;

struct LaunchOptions {
  std::string tool;  // begins messages: who is speaking
  int processes = 1;
  std::string program;                          // a path, or a name to look for in PATH
  std::vector<std::string> arguments;           // argv, its first element included
  bool is_output_tagged = false;                // "[rank] " before each line of output
  double grace_seconds = kDefaultGraceSeconds;  // for the others, once one has failed
  std::optional<int> expendable_rank;           // may be killed: that is no failure of the job
};

// Every process gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and, unless it is set already
// and this process is no rank itself, ONEBIT_RENDEZVOUS: a file in a folder that only this user can
// enter and that is removed at the end. What other launchers said of this process is not passed on.
// Rank 0 has the standard input.
//
// Returns 0, or the status of the first process that failed, 128 + signal if one ended it. Throws
// StartError or ToolError when not all could be started; then none is left.
int Launch(const LaunchOptions& options);

// The environment of a rank, from that of this process.
std::vector<std::string> RankEnvironment(int rank, int ranks, const std::string& rendezvous);

// The rank that a launcher gave this process, before the library is asked; no value: it was started
// by none. Slurm counts in a step only: a batch script is not a rank of its job.
std::optional<int> LaunchedRank();

}  // namespace onebit::perf
