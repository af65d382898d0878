// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trust ratios: when there are none, when they are undefined, and their limits.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

class OneBitLambTest : public ::testing::Test {
 protected:
  OneBitLambTest() {
    training_.problem = {.ranks = 3, .dimension = 90};
    training_.config = DefaultOptimizer();
    training_.config.algorithm = onebitAlgorithmOneBitLamb;
    training_.config.beta2 = 0.97;
    training_.config.freezeStep = 10;
    training_.calls = 40;
    training_.learning_rate = [](uint64_t) { return 0.02; };
  }
  void Use(std::vector<onebitSegment_t> segments) {
    segments_ = std::move(segments);
    training_.config.segments = segments_.data();
    training_.config.segmentCount = segments_.size();
    training_.segment_count = segments_.size();
  }
  static onebitSegment_t Layer(size_t offset, size_t count, uint32_t flags = 0) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = offset;
    segment.count = count;
    segment.flags = flags;
    return segment;
  }

  Training training_;
  std::vector<onebitSegment_t> segments_;
};

TEST_F(OneBitLambTest, WithoutTrustRatiosIsOneBitAdam) {
  Use({Layer(0, 90, onebitSegmentNoTrustRatio)});
  const std::vector<Record> lamb = Train(training_);
  training_.segment_count = 0;
  training_.config.algorithm = onebitAlgorithmOneBitAdam;
  const std::vector<Record> adam = Train(training_);
  for (size_t rank = 0; rank < lamb.size(); ++rank) {
    EXPECT_EQ(lamb[rank].x, adam[rank].x);
    EXPECT_EQ(lamb[rank].m, adam[rank].m);
  }
}

// Never freezes; compared with the formula in double.
TEST_F(OneBitLambTest, DenseStepsAreLamb) {
  Use({Layer(0, 50), Layer(50, 40)});
  training_.config.freezeStep = ONEBIT_FREEZE_NEVER;
  training_.config.weightDecay = 0.02;
  training_.config.maxCoeff = 1.5;
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  std::vector<double> x(records[0].x[0].begin(), records[0].x[0].end());
  std::vector<double> m(x.size()), v(x.size()), u(x.size());
  for (uint64_t t = 1; t <= training_.calls; ++t) {
    const std::vector<float>& point = records[0].x[t - 1];
    std::vector<double> g(x.size());
    for (int rank = 0; rank < training_.problem.ranks; ++rank) {
      const auto own = training_.problem.Gradient(point, rank, t);
      for (size_t i = 0; i < g.size(); ++i) g[i] += double{own[i]} / training_.problem.ranks;
    }
    for (const onebitSegment_t& layer : segments_) {
      double x_squared = 0, u_squared = 0;
      for (size_t i = layer.offset; i < layer.offset + layer.count; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.97 * v[i] + 0.03 * g[i] * g[i];
        u[i] = m[i] / (std::sqrt(v[i]) + 1e-8) + 0.02 * x[i];
        x_squared += x[i] * x[i];
        u_squared += u[i] * u[i];
      }
      const double c = std::clamp(std::sqrt(x_squared / u_squared), 0.01, 1.5);
      for (size_t i = layer.offset; i < layer.offset + layer.count; ++i) x[i] -= 0.02 * c * u[i];
    }
    EXPECT_LT(MaxDifference(records[0].x[t], x), 1e-4) << t;
  }
}

TEST_F(OneBitLambTest, ALayerOfZerosMovesAsInAdam) {
  training_.problem.dimension = 60;
  Use({Layer(0, 30), Layer(30, 30)});
  // The second layer starts at 0: its first ratio is undefined, and does not count.
  std::vector<Record> records(3);
  RunRanks(3, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = training_.problem.StartPoint();
    std::fill(x.begin() + 30, x.end(), 0.0f);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, training_.config);
    onebitTrustRatio_t ratio = ONEBIT_TRUST_RATIO_INIT;
    for (uint64_t step = 1; step <= 2; ++step) {
      std::vector<float> gradient = training_.problem.Gradient(x, rank, step);
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.02, 1, 0,
                                nullptr, nullptr));
      Check(onebitOptimizerGetTrustRatio(optimizer.get(), 1, &ratio));
      if (step == 1) {
        EXPECT_EQ(ratio.coefficient, 1);
        EXPECT_EQ(ratio.average, 0);
      }
    }
    EXPECT_LT(ratio.coefficient, 0.5);
    EXPECT_NEAR(ratio.average, 0.1 * ratio.coefficient, 1e-9);
  });
}

// The ratio of the first layer is far below the range, that of the second far above. DeepSpeed
// interprets a ratio of exactly 1 as no ratio, and leaves the average unchanged.
TEST_F(OneBitLambTest, CoefficientsKeepToTheirRange) {
  Use({Layer(0, 30), Layer(30, 30)});
  for (const auto variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
    training_.config.variant = variant;
    if (variant == onebitVariantDeepSpeed) {
      const onebitOptimizerConfig_t defaults = ONEBIT_OPTIMIZER_CONFIG_INIT;
      training_.config.lrWarmupSteps = defaults.lrWarmupSteps;
    }
    training_.config.minCoeff = 0.25;
    training_.config.maxCoeff = 1;
    RunRanks(1, [&](onebitComm_t comm, int) {
      std::vector<float> x(60, 1e-6f);
      std::fill(x.begin() + 30, x.end(), 1e6f);
      const OptimizerHandle optimizer = MakeOptimizer(comm, x, training_.config);
      std::vector<float> gradient(60, 1.0f);
      // DeepSpeed's first step updates nothing.
      for (int step = variant == onebitVariantPaper ? 1 : 0; step <= 1; ++step) {
        Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 1e-9, 1, 0,
                                  nullptr, nullptr));
      }
      onebitTrustRatio_t small = ONEBIT_TRUST_RATIO_INIT, large = ONEBIT_TRUST_RATIO_INIT;
      Check(onebitOptimizerGetTrustRatio(optimizer.get(), 0, &small));
      Check(onebitOptimizerGetTrustRatio(optimizer.get(), 1, &large));
      EXPECT_EQ(small.coefficient, 0.25);
      EXPECT_EQ(large.coefficient, 1);
      EXPECT_GT(small.average, 0);
      EXPECT_EQ(large.average > 0, variant == onebitVariantPaper);
    });
  }
}

// After the freeze gradients of one layer shrink and those of the other grow, so factors reach both
// of their limits as fast as they may.
TEST_F(OneBitLambTest, FactorsKeepToTheirRangeAndRate) {
  Use({Layer(0, 45), Layer(45, 45)});
  training_.problem.ranks = 1;    // no noise of compression
  training_.config.beta2 = 0.75;  // forgets faster than factors may rise
  training_.config.factorMin = 0.8;
  training_.config.factorMax = 1.125;
  training_.config.factorThreshold = 0.05;
  training_.calls = 60;
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    if (call < 10) return;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const float sign = gradient[i] < 0 ? -1.0f : 1.0f;
      gradient[i] = i < 45 ? gradient[i] / 64 : sign * 100;
    }
  };
  const std::vector<Record> records = Train(training_);
  int risen_fully = 0, fallen_fully = 0, at_most = 0, at_least = 0;
  for (size_t layer = 0; layer < 2; ++layer) {
    double last = 1;
    for (size_t call = 10; call < training_.calls; ++call) {
      const onebitTrustRatio_t& ratio = records[0].ratios[call][layer];
      EXPECT_GE(ratio.factor, 0.8);
      EXPECT_LE(ratio.factor, 1.125);
      EXPECT_LE(std::abs(ratio.factor / last - 1), 0.05 + 1e-9);
      EXPECT_NEAR(ratio.coefficient, ratio.average * ratio.factor, 1e-9);
      risen_fully += std::abs(ratio.factor / last - 1.05) < 1e-9 ? 1 : 0;
      fallen_fully += std::abs(ratio.factor / last - 0.95) < 1e-9 ? 1 : 0;
      at_most += ratio.factor == 1.125 ? 1 : 0;
      at_least += ratio.factor == 0.8 ? 1 : 0;
      last = ratio.factor;
    }
  }
  EXPECT_GE(risen_fully, 2);
  EXPECT_GE(fallen_fully, 2);
  EXPECT_GT(at_most, 0);
  EXPECT_GT(at_least, 0);
}

// When they are first compressed, the momenta of all layers have the same root mean square.
TEST_F(OneBitLambTest, ScalesMomentaToOneSize) {
  Use({Layer(0, 30), Layer(30, 30, onebitSegmentDense), Layer(60, 0), Layer(60, 30)});
  training_.calls = 10;
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (size_t i = 60; i < 90; ++i) gradient[i] *= 1000;
  };
  const std::vector<Record> records = Train(training_);
  const auto scaled = [&](size_t layer) {
    double sum = 0;
    for (size_t i = segments_[layer].offset; i < segments_[layer].offset + 30; ++i) {
      sum += double{records[0].m[i]} * records[0].m[i];
    }
    return records[0].ratios[9][layer].momentumScale * std::sqrt(sum / 30);
  };
  EXPECT_NEAR(scaled(0) / scaled(3), 1, 1e-6);
  EXPECT_EQ(records[0].ratios[9][1].momentumScale, 1);
  EXPECT_EQ(records[0].ratios[9][2].momentumScale, 1);
}

// Scaled to the others' size, its momentum must neither overflow nor drown theirs.
TEST_F(OneBitLambTest, ALayerWhoseMomentumDiedIsLeftAsItIs) {
  Use({Layer(0, 45), Layer(45, 45)});
  training_.config.beta1 =
      0.6;  // down to the smallest fp32 number, which times 0.6 rounds to itself
  training_.config.freezeStep = 260;
  training_.calls = 270;
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    for (size_t i = 45; i < 90 && call > 2; ++i) gradient[i] = 0;
  };
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  EXPECT_EQ(records[0].stats.skipped, 0u);
  EXPECT_NE(records[0].x[260], records[0].x.back());
  EXPECT_EQ(records[0].ratios.back()[1].momentumScale, 1);
}

TEST_F(OneBitLambTest, OthersHaveNoTrustRatios) {
  training_.config.algorithm = onebitAlgorithmOneBitAdam;
  RunRanks(1, [&](onebitComm_t comm, int) {
    std::vector<float> x = training_.problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, training_.config);
    onebitTrustRatio_t ratio = ONEBIT_TRUST_RATIO_INIT;
    EXPECT_EQ(onebitOptimizerGetTrustRatio(optimizer.get(), 0, &ratio), onebitInvalidUsage);
    EXPECT_EQ(onebitOptimizerGetTrustRatio(optimizer.get(), 1, &ratio), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerGetTrustRatio(nullptr, 0, &ratio), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerGetTrustRatio(optimizer.get(), 0, nullptr), onebitInvalidArgument);
    ratio.size = 3;
    EXPECT_EQ(onebitOptimizerGetTrustRatio(optimizer.get(), 0, &ratio), onebitInvalidArgument);
  });
}

}  // namespace
}  // namespace onebit::testing
