// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of groups: the steps of several calls, with one message where each call had its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/plan.h"

namespace onebit {

struct GroupPlan {
  Plan plan;
  std::vector<std::shared_ptr<const Plan>> calls;
  std::vector<size_t> packets;  // by call: where its packet space lies in that of the group
};

// In each exchange that any call has, a rank sends every other one message: a table of one word per
// call (DigestOf), then the pieces of all calls, in their order. Sends of a call become copies into
// that message and receives copies out of it; everything else stays what it is for the call alone,
// and so do its results. No call may have native steps.
GroupPlan MergePlans(std::vector<std::shared_ptr<const Plan>> calls, uint32_t rank, uint32_t ranks);

// Calls of a group that travel together.
struct GroupCut {
  size_t begin = 0;
  size_t count = 0;
};

// The first cut of calls of which `keys` says what they are; the next one begins behind it. A call
// of more than `group_elements` elements, in the parts of all ranks where it has such, is alone;
// others are together while they have up to four times as many. Pure, so that all ranks cut alike.
GroupCut FirstCut(std::span<const PlanKey> keys, size_t ranks, uint64_t group_elements);

}  // namespace onebit
