// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A run: rounds until the time is over, and the resources that ranks hold afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perf/studies/soak/process_usage.h"
#include "perf/studies/soak/rank_round.h"
#include "perf/studies/soak/soak_options.h"
#include "perf/studies/soak/soak_plan.h"

namespace onebit::soak {

// The figures of one rank, sent between processes as raw bytes. If ranks are threads, the first has
// the figures of their process and the others have zeros.
struct RankFigures {
  int pid = 0;
  uint64_t logical_bytes = 0;
  uint64_t wire_bytes = 0;
  ProcessUsage start;      // before the first round
  ProcessUsage warmed_up;  // between two rounds, as `end`: nothing is left of a round
  ProcessUsage end;
};

struct SoakResult {
  int ranks = 0;
  uint64_t rounds = 0;
  double seconds = 0;
  bool was_warmed_up = false;  // long enough to tell growth
  uint64_t communicators = 0;
  uint64_t compressors = 0;
  std::array<uint64_t, kActionKinds> actions = {};  // by kind, of all groups
  std::vector<RankFigures> by_rank;
};

// Called on the thread of the speaking rank before every round.
using OnRound = std::function<void(uint64_t rounds_done, const SoakResult& so_far)>;

// Runs the ranks that this process drives. The result is complete in the process of rank 0, which
// is also the only one that calls `on_round`.
//
// Throws ToolError for a wrong result or an error of the library; the text has the command that
// repeats it.
SoakResult RunSoak(const SoakOptions& options, const SoakHooks& hooks = {},
                   const OnRound& on_round = {});

// Returns what grew beyond its limit, or "". Descriptors may not grow at all.
std::string ProblemWithGrowth(const SoakResult& result, bool is_memory_limited = true);

// Limits for the end of the run, given the state when it was warmed up. Memory allocated by malloc,
// where a leak shows, may grow by a tenth plus 4 MiB. Resident memory may reach what malloc had
// allocated, because UCX's buffers become resident only when first used, plus a tenth and 32 MiB
// for memory outside malloc.
uint64_t HeapLimit(uint64_t warmed_up_bytes);
uint64_t ResidentLimit(const ProcessUsage& warmed_up);

}  // namespace onebit::soak
