// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The options of a soak.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "perf/common/procs.h"
#include "perf/common/rank_environment.h"

namespace onebit::soak {

struct SoakOptions {
  double seconds = 0;        // 0: until all rounds are done
  uint64_t rounds = 0;       // 0: until the time is over
  uint64_t first_round = 0;  // every round begins with nothing, so it can be repeated alone
  uint64_t seed = 1;
  perf::RankSource ranks;
  std::string transport = "local";   // in use, given or not
  size_t max_elements = 256 * 1024;  // of a tensor
  double deadline_seconds = 60;      // without progress, for a collective
  bool is_memory_limited = true;     // growth of it is a failure
  std::string json_path;             // empty: none
};

// Parses the command line. `launched_rank` is the rank that a launcher has given this process, if
// any. Prints help to stdout and returns no value if asked for it; throws UsageError on a mistake.
std::optional<SoakOptions> ParseOptions(int argc, const char* const* argv,
                                        std::optional<int> launched_rank = perf::LaunchedRank());

// Returns the command that repeats one round on this many ranks.
std::string RepeatCommand(const SoakOptions& options, int ranks, uint64_t round);

}  // namespace onebit::soak
