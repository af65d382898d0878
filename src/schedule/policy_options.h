// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The configuration of a step policy after its checks, with defaults filled in.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "onebit/schedule.h"
#include "schedule/freeze_rule.h"
#include "schedule/variant.h"
#include "schedule/zero_one_schedule.h"

namespace onebit {

// Effective values. The members correspond to those of onebitPolicyConfig_t.
struct PolicyOptions {
  onebitAlgorithm_t algorithm = onebitAlgorithmOneBitAdam;
  Variant variant = Variant::kPaper;
  // 1-bit Adam and 1-bit LAMB only.
  double beta2 = 0.999;
  int64_t freeze_step = ONEBIT_FREEZE_AUTOMATIC;
  uint64_t lr_warmup_steps = 0;
  // 0/1 Adam only.
  ZeroOnePolicy zero_one;
};

// Does not check size, magic and version of `config`. Errors name the member.
Result<PolicyOptions> ReadPolicyOptions(const onebitPolicyConfig_t& config);

// True if a freezeStep stands for a rule that follows the variance.
bool FollowsVariance(int64_t freeze_step);

// The freeze rule of 1-bit Adam and 1-bit LAMB. Allocates the history of one that has one.
FreezeRule FreezeRuleOf(const PolicyOptions& options);

}  // namespace onebit
