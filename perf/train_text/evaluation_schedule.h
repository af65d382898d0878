// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// After which steps the held-out text is evaluated while a run goes on.
#pragma once

#include <cmath>

namespace onebit::train {

struct EvaluationSchedule {
  double every_percent = 0;  // of the steps; 0: never
  int steps = 500;

  /** `steps_done` in [1, steps]. The last step is always one, unless there is none. */
  bool IsDue(int steps_done) const {
    if (every_percent == 0) return false;
    return steps_done == steps || Count(steps_done) > Count(steps_done - 1);
  }

 private:
  /** Evaluations up to a step, as a whole number although percents of steps may not be. */
  double Count(int steps_done) const {
    constexpr double kRounding = 1e-9;
    return std::floor(100.0 * steps_done / (every_percent * steps) + kRounding);
  }
};

}  // namespace onebit::train
