// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The sum for a scale, in the one order that every processor follows.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/types.h"

namespace onebit::kernels::reference {

// Computes kSumLanes partial sums, where lane i mod kSumLanes adds element i, from left to right;
// then a tree adds the upper half of the lanes to the lower half until one is left.
template <class Real, class ValueAt>
Real SumOfLanes(size_t count, ScaleRule rule, const ValueAt& value_at) {
  Real lanes[kSumLanes] = {};
  for (size_t i = 0; i < count; ++i) {
    const Real z = value_at(i);
    const Real term = rule == ScaleRule::kL2 ? z * z : std::abs(z);
    lanes[i % kSumLanes] += term;
  }
  for (size_t width = kSumLanes / 2; width >= 1; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// Adds in fp32. Squares of very large or very small numbers leave its range, so a sum that is not
// finite or below 2^-100 is computed again in fp64, where no finite block can overflow. (If all
// elements are 0 the second sum is 0 like the first; if one is not finite, neither is the sum.)
template <class ValueAt>
double BlockSum(size_t count, ScaleRule rule, const ValueAt& value_at) {
  const float sum = SumOfLanes<float>(count, rule, value_at);
  if (std::isfinite(sum) && sum >= 0x1p-100f) return sum;
  return SumOfLanes<double>(count, rule, value_at);
}

// True if every z can be compressed: it is finite and, when the residual is bf16, below 2^127, so
// that no residual can round to infinity.
template <class ValueAt>
bool AllInRange(size_t count, DataType residual_type, const ValueAt& value_at) {
  for (size_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(value_at(i));
    if (!std::isfinite(magnitude)) return false;
    if (residual_type == DataType::kBf16 && magnitude >= 0x1p127f) return false;
  }
  return true;
}

}  // namespace onebit::kernels::reference
