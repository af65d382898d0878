// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The learning rate of each step: linear warm-up, then half a cosine down to zero.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onebit::train {

struct LrSchedule {
  double peak = 3e-3;
  int warmup_steps = 40;
  int steps = 500;

  /**
   * Returns the rate of step `step` in [0, steps). The last warm-up step has the peak; the step
   * after the end of the run would have 0.
   */
  double Rate(int step) const {
    if (step < warmup_steps) return peak * (step + 1) / warmup_steps;
    const double progress = static_cast<double>(step - warmup_steps) / (steps - warmup_steps);
    return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
  }
};

}  // namespace onebit::train
