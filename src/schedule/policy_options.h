// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The configuration of a step policy, checked and with its defaults filled in.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "onebit/schedule.h"
#include "schedule/freeze_rule.h"
#include "schedule/variant.h"
#include "schedule/zero_one_schedule.h"

namespace onebit {

// Values in force. Members mean what those of onebitPolicyConfig_t mean.
struct PolicyOptions {
  onebitAlgorithm_t algorithm = onebitAlgorithmOneBitAdam;
  Variant variant = Variant::kPaper;
  // Of 1-bit Adam and 1-bit LAMB.
  double beta2 = 0.999;
  int64_t freeze_step = ONEBIT_FREEZE_AUTOMATIC;
  uint64_t lr_warmup_steps = 0;
  // Of 0/1 Adam.
  ZeroOnePolicy zero_one;
};

// Does not look at the head of `config`. Errors name the member.
Result<PolicyOptions> ReadPolicyOptions(const onebitPolicyConfig_t& config);

// The freeze of 1-bit Adam and 1-bit LAMB. Allocates the history of an automatic one.
FreezeRule FreezeRuleOf(const PolicyOptions& options);

}  // namespace onebit
