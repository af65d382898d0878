// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Seeded numbers, rounded, and their sums.
#include "perf/baselines/expectation.h"

#include <cmath>

namespace onebit::perf {
namespace {

constexpr float kStepsPerUnit = 64;

}  // namespace

// Seed 0 is that of the data that is timed.
CheckedInput::CheckedInput(int call, int rank)
    : input_(onebitFloat32, static_cast<uint64_t>(call) + 1, rank) {}

float CheckedInput::At(size_t index) const {
  const float rounded = std::nearbyint(input_.At(index) * kStepsPerUnit) / kStepsPerUnit;
  return rounded + 0.0f;  // not -0, of which a sum is -0 or 0, as a system adds
}

std::span<const float> ExactSum::Next(std::span<const CheckedInput> inputs) {
  for (size_t i = 0; i < sum_.size(); ++i) {
    float sum = 0;
    for (const CheckedInput& input : inputs) sum += input.At(i);
    sum_[i] = sum;
  }
  return sum_;
}

}  // namespace onebit::perf
