// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps after which the held-out text is evaluated during a run.
#pragma once

#include <cmath>

namespace onebit::train {

struct EvaluationSchedule {
  double every_percent = 0;  // of the steps; 0: never
  int steps = 500;

  /**
   * True if an evaluation follows step `steps_done` in [1, steps]. It always follows the last step,
   * unless there are none.
   */
  bool IsDue(int steps_done) const {
    if (every_percent == 0) return false;
    return steps_done == steps || Count(steps_done) > Count(steps_done - 1);
  }

 private:
  /** Evaluations up to a step: a whole number, although percents of steps may not be. */
  double Count(int steps_done) const {
    constexpr double kRounding = 1e-9;
    return std::floor(100.0 * steps_done / (every_percent * steps) + kRounding);
  }
};

}  // namespace onebit::train
