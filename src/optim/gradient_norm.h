// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Norms of gradients: when they can be used, and the factor that limits them.
#pragma once

#include <cmath>
#include <limits>

#include "optim/step_agreement.h"

namespace onebit::optim {

// True if gradients with this sum of squares leave every m and v finite: no square exceeds the sum.
inline bool IsUsable(double sum_of_squares) {
  return sum_of_squares <= std::numeric_limits<float>::max();  // false for NaN
}

// The norm of gradients with this sum of squares; infinite if they are not usable.
inline double NormOf(double sum_of_squares) {
  return IsUsable(sum_of_squares) ? std::sqrt(sum_of_squares)
                                  : std::numeric_limits<double>::infinity();
}

// The factor that gives gradients of this norm, which includes grad_scale, at most max_grad_norm.
inline float ClippedScale(const StepNumbers& input, double norm) {
  double scale = input.grad_scale;
  if (norm > input.max_grad_norm) scale *= input.max_grad_norm / norm;
  return static_cast<float>(scale);
}

}  // namespace onebit::optim
