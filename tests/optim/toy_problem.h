// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A small noisy least-squares problem, one objective per rank. All constants are exact in binary:
//   f_i(x) = 1/2 sum_k a_k (x_k - c_ik)^2,   gradient at step t: a (x - c_i) + nu_t,
// with noise of mean zero over 29 steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onebit::testing {

struct ToyProblem {
  int ranks = 2;
  size_t dimension = 16;
  int64_t noise_offset = 24;  // "off" of the recorded trajectories

  static double Curvature(size_t k) { return 0.5 + 0.25 * static_cast<double>(k % 5); }
  static double Start(size_t k) { return (static_cast<double>((5 * k + 1) % 11) - 5) / 2; }
  static double Center(size_t k, int rank) {
    return (static_cast<double>((7 * k + 11 * static_cast<size_t>(rank) + 3) % 13) - 6) / 4;
  }

  std::vector<float> StartPoint() const {
    std::vector<float> x(dimension);
    for (size_t k = 0; k < dimension; ++k) x[k] = static_cast<float>(Start(k));
    return x;
  }

  // Gradient of `rank` at step t = 1, 2, ...
  std::vector<float> Gradient(const std::vector<float>& x, int rank, uint64_t t) const {
    std::vector<float> gradient(dimension);
    for (size_t k = 0; k < dimension; ++k) {
      const int64_t noise =
          (31 * static_cast<int64_t>(t) + 17 * static_cast<int64_t>(k) + 13 * rank + noise_offset) %
          29;
      gradient[k] = static_cast<float>(Curvature(k) * (x[k] - Center(k, rank)) +
                                       static_cast<double>(noise - 14) / 64);
    }
    return gradient;
  }

  // mean_i f_i(x).
  double Loss(const std::vector<float>& x) const {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t k = 0; k < dimension; ++k) {
        const double distance = x[k] - Center(k, rank);
        sum += 0.5 * Curvature(k) * distance * distance;
      }
    }
    return sum / ranks;
  }

  // The loss at its minimum, x = mean_i c_i, because curvatures are equal on all ranks.
  double LeastLoss() const {
    std::vector<float> x(dimension);
    for (size_t k = 0; k < dimension; ++k) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += Center(k, rank);
      x[k] = static_cast<float>(sum / ranks);
    }
    return Loss(x);
  }
};

}  // namespace onebit::testing
