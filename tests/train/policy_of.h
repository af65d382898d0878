// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Returns the policy that an optimizer of this configuration follows.
#pragma once

#include "onebit/optim.h"
#include "onebit/schedule.h"

namespace onebit::train {

/** Copies all members that both have. */
inline onebitPolicyConfig_t PolicyOf(const onebitOptimizerConfig_t& optimizer) {
  onebitPolicyConfig_t policy = ONEBIT_POLICY_CONFIG_INIT;
  policy.algorithm = optimizer.algorithm;
  policy.variant = optimizer.variant;
  policy.lrWarmupSteps = optimizer.lrWarmupSteps;
  policy.freezeStep = optimizer.freezeStep;
  policy.varFreezeStep = optimizer.varFreezeStep;
  policy.varUpdateScaler = optimizer.varUpdateScaler;
  policy.localStepScaler = optimizer.localStepScaler;
  policy.localStepClipper = optimizer.localStepClipper;
  policy.localStepStart = optimizer.localStepStart;
  policy.rateTied = optimizer.rateTied;
  policy.denseStepFeedsMomentum = optimizer.denseStepFeedsMomentum;
  return policy;
}

}  // namespace onebit::train
