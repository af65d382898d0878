// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/studies/baselines/exact_sum.h"

#include <cmath>

#include "perf/common/seeded_elements.h"

namespace onebit::perf {
namespace {

constexpr float kStepsPerUnit = 64;

}  // namespace

void FillExact(float* values, size_t count, uint64_t seed, int rank) {
  FillSeeded(values, count, onebitFloat32, seed, rank);
  for (size_t i = 0; i < count; ++i) {
    // Adding 0 turns -0 into 0: the sign of a sum of zeros depends on the order of additions.
    values[i] = std::nearbyint(values[i] * kStepsPerUnit) / kStepsPerUnit + 0.0f;
  }
}

void ExactSum::Simulate(std::span<const void* const> inputs, void* output) {
  auto* sums = static_cast<float*>(output);
  for (size_t i = 0; i < row_.count; ++i) {
    float sum = 0;
    for (const void* input : inputs) sum += static_cast<const float*>(input)[i];
    sums[i] = sum;
  }
}

}  // namespace onebit::perf
