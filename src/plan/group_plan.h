// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of groups: steps of several calls, with one message instead of one per call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace onebit {

struct GroupPlan {
  Plan plan;
  std::vector<std::shared_ptr<const Plan>> calls;
  std::vector<size_t> packets;  // offset of each call's packet space in the group's
};

// In each exchange a rank sends one message to each rank to which any of the calls sends one there:
// a table of one word per call (DigestOf), then the pieces of all calls in order. Sends of a call
// become copies into that message, receives become copies out of it. All other steps, and so the
// results, are the same as without a group. No call may have native steps.
GroupPlan MergePlans(std::vector<std::shared_ptr<const Plan>> calls, uint32_t rank, uint32_t ranks);

// Sends and receives that make progress together, each with a message of its own. Those of one pair
// of ranks are sent in the order of the calls. send_receive.cc
GroupPlan MergePairs(std::vector<std::shared_ptr<const Plan>> calls, uint32_t rank, uint32_t ranks);

// Calls of a group that share messages.
struct GroupCut {
  size_t begin = 0;
  size_t count = 0;
};

// Returns the first cut of a list of calls with these keys; the next one begins behind it. A call
// of more than `group_elements` elements, summed over the parts of all ranks, is alone, and so is
// one with two levels and weights; others share messages up to four times as many elements, and
// until the buffers of the dense ones have `most_dense_bytes` together. Pure, so that all ranks cut
// alike.
GroupCut FirstCut(std::span<const PlanKey> keys, size_t ranks, uint64_t group_elements,
                  size_t most_dense_bytes = SIZE_MAX);

}  // namespace onebit
