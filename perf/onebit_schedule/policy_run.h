// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of a policy, one after the other, through the public API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "onebit/schedule.h"
#include "perf/common/rate_schedule.h"
#include "perf/onebit_schedule/volume.h"

namespace onebit::schedule {

using perf::RateSchedule;

class PolicyRun {
 public:
  // Throws perf::UsageError with the library's text if the configuration is wrong.
  explicit PolicyRun(const onebitPolicyConfig_t& config);

  // Returns the next step, given its learning rate.
  onebitStepPlan_t Step(double learning_rate);

 private:
  struct Destroy {
    void operator()(onebitPolicy_t policy) const { onebitPolicyDestroy(policy); }
  };
  std::unique_ptr<std::remove_pointer_t<onebitPolicy_t>, Destroy> policy_;
};

// A range of the steps of a run.
struct Steps {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string kinds;
  StepCounts counts;
};

// Returns steps `first` to `last`, in the policy's own numbering. Throws perf::UsageError, also if
// `first` is before its first step.
Steps RunSteps(const onebitPolicyConfig_t& config, const RateSchedule& rates, uint64_t first,
               uint64_t last);

}  // namespace onebit::schedule
