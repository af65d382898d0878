// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The schedule of any of the methods, as the C API shows it.
#pragma once

#include <variant>

#include "onebit/schedule.h"
#include "schedule/policy_options.h"
#include "schedule/two_stage_schedule.h"
#include "schedule/zero_one_schedule.h"

namespace onebit {

// One thread at a time.
class Policy {
 public:
  explicit Policy(const PolicyOptions& options);

  // What the next step does. Fills everything but `size`.
  void Next(double learning_rate, onebitStepPlan_t* plan) const;

  // Whether the next Commit looks at the sum.
  bool needs_variance_sum() const;
  void Commit(double learning_rate, double variance_sum);
  // Besides a step.
  void EndInterval();

 private:
  std::variant<TwoStageSchedule, ZeroOneSchedule> schedule_;
};

}  // namespace onebit
