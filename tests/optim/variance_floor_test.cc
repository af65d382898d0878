// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The variance floor of an element whose gradients were tiny up to the freeze.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kCount = 64 * kBlock;  // one segment, of which the last block has large gradients
constexpr size_t kElement = kCount - 7;
constexpr uint64_t kFreezeStep = 4;
constexpr float kRate = 1e-3f;

// Returns how far the element moves at its first gradient of 1, in learning rates.
double ThrownBy(onebitScales_t scales) {
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.beta1 = 0;
  config.beta2 = 0.5;
  config.biasCorrection = 1;
  config.freezeStep = kFreezeStep;
  config.scales = scales;
  double moved = 0;
  RunRanks(1, [&](onebitComm_t comm, int) {
    std::vector<float> x(kCount, 0.0f), gradient(kCount);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    for (uint64_t step = 1; step <= kFreezeStep + 1; ++step) {
      for (size_t i = 0; i < kCount; ++i) gradient[i] = i < kCount - kBlock ? 1e-6f : 1.0f;
      gradient[kElement] = step <= kFreezeStep ? 1e-6f : 1.0f;
      const float before = x[kElement];
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, kRate, 1, 0,
                                nullptr, nullptr));
      moved = std::abs(x[kElement] - before) / kRate;
    }
  });
  return moved;
}

// The root mean square of its block is 1, that of the segment an eighth of it.
TEST(VarianceFloorTest, ABlockOfLargeElementsRaisesIt) {
  EXPECT_NEAR(ThrownBy(onebitScalesSegment), 100, 1);
}

TEST(VarianceFloorTest, IsThatOfTheSegmentWhereScalesAreFused) {
  EXPECT_NEAR(ThrownBy(onebitScalesFused), 800, 8);
}

}  // namespace
}  // namespace onebit::testing
