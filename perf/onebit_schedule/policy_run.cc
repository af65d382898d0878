// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/onebit_schedule/policy_run.h"

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::schedule {

PolicyRun::PolicyRun(const onebitPolicyConfig_t& config) {
  onebitPolicy_t policy = nullptr;
  const onebitResult_t result = onebitPolicyCreate(&policy, &config);
  if (result == onebitInvalidArgument) throw perf::UsageError(onebitGetLastError(nullptr));
  perf::Check(result, "onebitPolicyCreate");
  policy_.reset(policy);
}

onebitStepPlan_t PolicyRun::Step(double learning_rate) {
  onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
  perf::Check(onebitPolicyNext(policy_.get(), learning_rate, &plan), "onebitPolicyNext");
  perf::Check(onebitPolicyCommit(policy_.get(), learning_rate, 0), "onebitPolicyCommit");
  return plan;
}

Steps RunSteps(const onebitPolicyConfig_t& config, const RateSchedule& rates, uint64_t first,
               uint64_t last) {
  Steps steps = {.first = first, .last = last};
  PolicyRun run(config);
  uint64_t step = 0;
  for (uint64_t made = 0; made == 0 || step < last; ++made) {
    const onebitStepPlan_t plan = run.Step(rates.At(made));
    step = plan.step;
    if (made == 0 && first < step) {
      throw perf::UsageError(fmt::format("--steps: this method counts its steps from {}", step));
    }
    if (step < first) continue;
    steps.kinds.push_back(plan.kind);
    steps.counts.Add(plan);
  }
  return steps;
}

}  // namespace onebit::schedule
