// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Gradients that every rank can compute for all, and errors of averages.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace onebit::testing {

inline std::vector<float> GradientOf(int rank, int tensor, size_t count) {
  std::mt19937 random(static_cast<unsigned>(100 * tensor + rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<float> AverageGradient(int ranks, int tensor, size_t count) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = GradientOf(rank, tensor, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i] / static_cast<float>(ranks);
  }
  return sum;
}

// |a - b| / |b|
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace onebit::testing
