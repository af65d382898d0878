// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rows of an embedding that gradients reach once in a thousand steps: how far they are thrown.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

constexpr size_t kRows = 64, kWidth = 16;
constexpr uint64_t kSteps = 1000, kTouched = 707;
constexpr double kRate = 1e-3;

// Row 0 gets a gradient of 1 in step kTouched, on one of two ranks, when intervals are 8 steps
// long. In other steps it gets what softmax sends to an output that nearly never occurs. The other
// rows get gradients of about 1 in every step.
float GradientAt(size_t row, size_t column, uint64_t step, int rank) {
  const auto noise =
      static_cast<float>((31 * step + 17 * row + 7 * column + 13 * static_cast<size_t>(rank)) %
                         29) /
          14 -
      1;
  if (row != 0) return noise;
  return step == kTouched && rank == 1 ? 1 : 1e-6f * noise;
}

// Returns how far row 0 was away from where it began, at most, in learning rates. `rows` form the
// first segment, which has the flags; a row that is alone in it gets no other gradient.
double ThrownBy(uint32_t flags, double variance_floor = ONEBIT_UNDEF_REAL, size_t rows = kRows) {
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = segments[1].offset = rows * kWidth;
  segments[0].flags = flags;
  segments[1].count = (kRows - rows) * kWidth;
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.beta2 = 0.99;
  config.lrWarmupSteps = 50;
  config.varFreezeStep = 200;
  config.localStepScaler = 100;
  config.localStepClipper = 8;
  config.varianceFloor = variance_floor;
  config.segments = segments;
  config.segmentCount = 2;
  std::vector<double> most(2);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x(kRows * kWidth, 0.0f), gradient(kRows * kWidth);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = GradientAt(i / kWidth, i % kWidth, step, rank);
        if (rows == 1 && std::abs(gradient[i]) < 1e-5f) gradient[i] = 0;
      }
      const double rate = kRate * std::min(1.0, static_cast<double>(step) / 50);
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, rate, 1, 0,
                                nullptr, nullptr));
      for (size_t i = 0; i < kWidth; ++i) {
        most[static_cast<size_t>(rank)] =
            std::max(most[static_cast<size_t>(rank)], std::abs(x[i]) / kRate);
      }
    }
    EXPECT_EQ(StatsOf(optimizer).skipped, 0u);
  });
  return std::max(most[0], most[1]);
}

TEST(RareRowsTest, AFlaggedRowIsNotThrown) {
  EXPECT_LT(ThrownBy(onebitSegmentRareRows), 10);
  EXPECT_LT(ThrownBy(onebitSegmentRareRows | onebitSegmentDense), 10);
}

// The default bounds it for all segments; the dense ones do not escape between syncs either.
TEST(RareRowsTest, ARowOfAnySegmentIsBounded) {
  EXPECT_LT(ThrownBy(0), 100);
  EXPECT_LT(ThrownBy(onebitSegmentDense), 100);
}

// Without a variance there is nothing to divide by, and the flag is a floor by itself.
TEST(RareRowsTest, ASegmentWithoutVarianceDoesNotMove) {
  EXPECT_EQ(ThrownBy(onebitSegmentRareRows | onebitSegmentDense, 0, 1), 0);
  EXPECT_EQ(ThrownBy(onebitSegmentDense, ONEBIT_UNDEF_REAL, 1), 0);
}

// Without a floor the row leaves for good.
TEST(RareRowsTest, TheFloorIsWhatHoldsIt) {
  EXPECT_GT(ThrownBy(0, 0), 1e4);
  EXPECT_GT(ThrownBy(onebitSegmentDense, 0), 1e4);
}

}  // namespace
}  // namespace onebit::testing
