// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of a policy, one after the other, through the public API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "onebit/schedule.h"
#include "perf/onebit_schedule/rate_schedule.h"
#include "perf/onebit_schedule/volume.h"

namespace onebit::schedule {

class PolicyRun {
 public:
  // Throws perf::UsageError if the configuration is wrong, in the words of the library.
  explicit PolicyRun(const onebitPolicyConfig_t& config);

  // The next step, with this learning rate.
  onebitStepPlan_t Step(double learning_rate);

 private:
  struct Destroy {
    void operator()(onebitPolicy_t policy) const { onebitPolicyDestroy(policy); }
  };
  std::unique_ptr<std::remove_pointer_t<onebitPolicy_t>, Destroy> policy_;
};

// Some steps of a run, those before them left out.
struct Steps {
  uint64_t first = 0;
  uint64_t last = 0;
  std::string kinds;
  StepCounts counts;
};

// Steps `first` to `last`, by the numbers that the policy gives them. Throws perf::UsageError also
// if `first` is before its first step.
Steps RunSteps(const onebitPolicyConfig_t& config, const RateSchedule& rates, uint64_t first,
               uint64_t last);

}  // namespace onebit::schedule
