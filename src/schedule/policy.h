// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The schedule of any algorithm, in the form of the C API.
#pragma once

#include <variant>

#include "onebit/schedule.h"
#include "schedule/policy_options.h"
#include "schedule/two_stage_schedule.h"
#include "schedule/zero_one_schedule.h"

namespace onebit {

// Not thread-safe.
class Policy {
 public:
  explicit Policy(const PolicyOptions& options);

  // Writes what the next step does to `plan`, except `size`.
  void Next(double learning_rate, onebitStepPlan_t* plan) const;

  // True if the next Commit uses the sum.
  bool needs_variance_sum() const;
  void Commit(double learning_rate, double variance_sum);
  // Ends the interval without a step.
  void EndInterval();

 private:
  std::variant<TwoStageSchedule, ZeroOneSchedule> schedule_;
};

}  // namespace onebit
