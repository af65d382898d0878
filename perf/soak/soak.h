// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A run: rounds until the time is over, and what the ranks hold after them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perf/common/process_usage.h"
#include "perf/soak/options.h"
#include "perf/soak/plan.h"
#include "perf/soak/rank_round.h"

namespace onebit::soak {

// What a rank has found. It travels between processes as it is. Of threads the first has what their
// process holds, and the others have zeros.
struct RankFigures {
  int pid = 0;
  uint64_t logical_bytes = 0;
  uint64_t wire_bytes = 0;
  perf::ProcessUsage start;      // before the first round
  perf::ProcessUsage warmed_up;  // between two rounds, as `end`: nothing is left of a round
  perf::ProcessUsage end;
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

// On the thread of the rank that speaks, before every round.
using OnRound = std::function<void(uint64_t rounds_done, const SoakResult& so_far)>;

// Runs the ranks that this process drives. The result is complete where rank 0 is, which is the
// only place that `on_round` is called.
//
// Throws ToolError: a wrong result, or an error of the library, with what repeats it.
SoakResult RunSoak(const SoakOptions& options, const SoakHooks& hooks = {},
                   const OnRound& on_round = {});

// What grew more than it may, "" if nothing did. Descriptors never may.
std::string ProblemWithGrowth(const SoakResult& result, bool is_memory_limited = true);

// The most that may be held in the end, after so much was when the run was warmed up: a tenth more
// and 4 MiB of what malloc has given out, where a leak shows. What is resident may come up to what
// malloc had given out then, because pages of buffers that UCX has from the start become resident
// when they are first used; a tenth and 32 MiB beyond that are for what does not come from malloc.
uint64_t HeapLimit(uint64_t warmed_up_bytes);
uint64_t ResidentLimit(const perf::ProcessUsage& warmed_up);

}  // namespace onebit::soak
