// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A variational inequality, F(z) = 0 for a monotone F that is the mean of the ranks' F_m, with
// compressed communication: MASHA1 and MASHA2 (Beznosikov et al., "Distributed Methods with
// Compressed Communication for Solving Variational Inequalities, with Theoretical Guarantees",
// NeurIPS 2022).
//
//   variational masha1   Rand-k, which is unbiased, on the way to the server and on the way back
//   variational masha2   Top-k with error feedback on both ways: one call
//
// Prints the iteration and the distance to the solution.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "perf/examples/example_ranks.h"

namespace {

using namespace onebit::examples;

constexpr int kRanks = 4;
constexpr size_t kSize = 12;
constexpr size_t kKept = 4;
constexpr int kIterations = 300;
constexpr double kAnchoring = 0.75;  // tau: what the last point counts for against the anchor
constexpr int64_t kFirstTensor = 40;

using Vector = std::array<double, kSize>;

// F_m(z) = D_m z + S_m z + b_m with a positive diagonal D and an antisymmetric S.
double Coupling(size_t m, size_t k, size_t l) {
  return (static_cast<double>((3 * k + 5 * l + 7 * m) % 9) - 4) / 32;
}
double Entry(size_t m, size_t k, size_t l) {
  const double diagonal = k == l ? 0.5 + 0.125 * static_cast<double>((k + m) % 4) : 0;
  return diagonal + Coupling(m, k, l) - Coupling(m, l, k);
}
double Offset(size_t m, size_t k) {
  return (static_cast<double>((7 * k + 11 * m + 3) % 13) - 6) / 4;
}

Vector Operator(size_t m, const Vector& z) {
  Vector value{};
  for (size_t k = 0; k < kSize; ++k) {
    for (size_t l = 0; l < kSize; ++l) value[k] += Entry(m, k, l) * z[l];
    value[k] += Offset(m, k);
  }
  return value;
}

// The zero of the mean operator, by elimination. Its symmetric part is positive, so no pivot is 0.
Vector Solution() {
  std::array<std::array<double, kSize + 1>, kSize> row{};
  for (size_t k = 0; k < kSize; ++k) {
    for (size_t m = 0; m < kRanks; ++m) {
      for (size_t l = 0; l < kSize; ++l) row[k][l] += Entry(m, k, l) / kRanks;
      row[k][kSize] -= Offset(m, k) / kRanks;
    }
  }
  for (size_t pivot = 0; pivot < kSize; ++pivot) {
    for (size_t k = 0; k < kSize; ++k) {
      if (k == pivot) continue;
      const double factor = row[k][pivot] / row[pivot][pivot];
      for (size_t l = pivot; l <= kSize; ++l) row[k][l] -= factor * row[pivot][l];
    }
  }
  Vector z{};
  for (size_t k = 0; k < kSize; ++k) z[k] = row[k][kSize] / row[k][k];
  return z;
}

// A coin that all ranks share: splitmix64 of the iteration. Heads with probability 1 - tau.
bool IsHeads(int iteration) {
  uint64_t x = (static_cast<uint64_t>(iteration) + 1) * 0x9e37'79b9'7f4a'7c15u;
  x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9u;
  x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11ebu;
  x ^= x >> 31;
  return x < uint64_t{1} << 62;
}

// The mean of all ranks' vectors as compressed calls bring it.
class Communication {
 public:
  Communication(onebitComm_t comm, int rank, bool has_feedback) : comm_(comm) {
    if (has_feedback) {
      calls_.push_back(
          SparseCompressor(comm, onebitCodecTopk, onebitModeEf, kSize, kKept, kFirstTensor, 2));
      return;
    }
    // The second call is the way back: only one rank has a weight, and all have its input.
    for (int way = 0; way < 2; ++way) {
      calls_.push_back(SparseCompressor(comm, onebitCodecRandk, onebitModePlain, kSize, kKept,
                                        kFirstTensor + way, 1));
    }
    Check(onebitCompressorSetWeight(calls_[1].get(), rank == 0 ? 1.0f : 0.0f));
  }

  Vector Mean(const Vector& own) {
    std::array<float, kSize> values;
    for (size_t k = 0; k < kSize; ++k) values[k] = static_cast<float>(own[k]);
    for (const onebit::UniqueCompressor& compressor : calls_) {
      Check(onebitAllReduce(values.data(), values.data(), kSize, onebitFloat32, onebitAvg,
                            compressor.get(), comm_, nullptr));
    }
    Vector mean;
    for (size_t k = 0; k < kSize; ++k) mean[k] = static_cast<double>(values[k]);
    return mean;
  }

 private:
  onebitComm_t comm_;
  std::vector<onebit::UniqueCompressor> calls_;
};

Vector DenseMean(onebitComm_t comm, Vector own) {
  Check(onebitAllReduce(own.data(), own.data(), kSize, onebitFloat64, onebitAvg, nullptr, comm,
                        nullptr));
  return own;
}

void Run(onebitComm_t comm, int rank, bool has_feedback) {
  const auto m = static_cast<size_t>(rank);
  const double rate = has_feedback ? 0.2 : 0.08;
  const Vector solution = Solution();
  Communication communication(comm, rank, has_feedback);
  Vector z{}, anchor{};
  Vector own_at_anchor = Operator(m, anchor);
  Vector mean_at_anchor = DenseMean(comm, own_at_anchor);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    Vector half;
    for (size_t k = 0; k < kSize; ++k) {
      half[k] = kAnchoring * z[k] + (1 - kAnchoring) * anchor[k] - rate * mean_at_anchor[k];
    }
    Vector difference = Operator(m, half);
    for (size_t k = 0; k < kSize; ++k) {
      difference[k] = rate * (difference[k] - own_at_anchor[k]);
    }
    const Vector correction = communication.Mean(difference);
    double distance = 0;
    for (size_t k = 0; k < kSize; ++k) {
      z[k] = half[k] - correction[k];
      distance += (z[k] - solution[k]) * (z[k] - solution[k]);
    }
    if (rank == 0) std::printf("%d %.9g\n", iteration + 1, std::sqrt(distance));
    if (!IsHeads(iteration)) continue;
    anchor = z;
    own_at_anchor = Operator(m, anchor);
    mean_at_anchor = DenseMean(comm, own_at_anchor);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_masha1 = argc == 2 && std::strcmp(argv[1], "masha1") == 0;
  if (!is_masha1 && (argc != 2 || std::strcmp(argv[1], "masha2") != 0)) {
    std::fprintf(stderr, "usage: variational masha1|masha2\n");
    return 2;
  }
  try {
    RunRanks(kRanks, [&](onebitComm_t comm, int rank) { Run(comm, rank, !is_masha1); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "variational: %s\n", error.what());
    return 1;
  }
  return 0;
}
