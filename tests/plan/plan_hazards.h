// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hazards of a plan: pairs of steps that touch the same memory, at least one of them writing, with
// no path of dependencies between them.
#pragma once

#include <string>

#include "plan/group_plan.h"
#include "plan/plan.h"

namespace onebit {

// Tells if the caller's buffers overlap: those of allreduce and broadcast are then equal; in a
// reduce-scatter and an all-gather the smaller one is this rank's part of the larger one.
enum class Buffers { kSeparate, kInPlace };

// Describes the first hazard of the plan; "" if it has none. Residuals count as a single
// generation, as in a compressor that is not transactional.
std::string HazardOf(const Plan& plan, Buffers buffers);
std::string HazardOf(const GroupPlan& group, Buffers buffers);

// True if a path of dependencies leads from one step to another.
bool Precedes(const Plan& plan, uint32_t before, uint32_t after);

// Returns the plan without the dependency that is entry `edge` of its successors.
Plan WithoutDependency(const Plan& plan, uint32_t edge);

}  // namespace onebit
