// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// When an optimizer freezes its variance.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

// Returns the step at which the variance of a constant gradient is frozen.
uint64_t FrozenAt(onebitOptimizerConfig_t config, size_t calls,
                  decltype(Training::spoil) spoil = nullptr) {
  Training training;
  training.problem = {.ranks = 2, .dimension = 16};
  training.config = config;
  training.calls = calls;
  training.learning_rate = [](uint64_t) { return 1e-6; };
  training.spoil = [&](size_t call, int rank, std::vector<float>& gradient) {
    std::fill(gradient.begin(), gradient.end(), 0.25f);
    if (spoil) spoil(call, rank, gradient);
  };
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);
  EXPECT_EQ(records[0].stats.frozen_at, records[1].stats.frozen_at);
  for (const onebitStepResult_t& result : records[0].results) {
    const uint64_t frozen_at = records[0].stats.frozen_at;
    const bool is_compressed = frozen_at != 0 && result.step > frozen_at;
    if (result.skipped) continue;
    EXPECT_EQ(result.stage, is_compressed ? onebitStageCompressed : onebitStageDense);
  }
  return records[0].stats.frozen_at;
}

onebitOptimizerConfig_t Automatic(double beta2) {
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.beta2 = beta2;
  return config;
}

TEST(OneBitAdamFreezeTest, AutomaticFiresOnConstantGradient) {
  EXPECT_EQ(FrozenAt(Automatic(0.9), 45), 37u);
  EXPECT_EQ(FrozenAt(Automatic(0.95), 80), 75u);
  EXPECT_EQ(FrozenAt(Automatic(0.99), 385), 378u);
}

TEST(OneBitAdamFreezeTest, AutomaticFiresOnConstantGradientWithDefaultBeta) {
  EXPECT_EQ(FrozenAt(DefaultOptimizer(), 3790), 3783u);
}

TEST(OneBitAdamFreezeTest, AutomaticWaitsForLearningRateWarmup) {
  onebitOptimizerConfig_t config = Automatic(0.9);
  config.lrWarmupSteps = 50;
  EXPECT_EQ(FrozenAt(config, 60), 51u);
}

onebitOptimizerConfig_t Settled(double beta2) {
  onebitOptimizerConfig_t config = Automatic(beta2);
  config.biasCorrection = 1;
  config.freezeStep = ONEBIT_FREEZE_SETTLED;
  return config;
}

// Long before the 1000 steps over which v averages, and the 3783 of the automatic rule.
TEST(OneBitAdamFreezeTest, SettledFiresEarlyOnConstantGradient) {
  EXPECT_EQ(FrozenAt(Settled(0.999), 40), 33u);
  onebitOptimizerConfig_t config = Settled(0.999);
  config.lrWarmupSteps = 50;
  EXPECT_EQ(FrozenAt(config, 60), 51u);
}

TEST(OneBitAdamFreezeTest, SettledWaitsForAVarianceThatMoves) {
  const auto fall = [](size_t call, int, std::vector<float>& gradient) {
    for (float& g : gradient) g /= std::sqrt(1 + static_cast<float>(call));
  };
  EXPECT_EQ(FrozenAt(Settled(0.999), 300, fall), 0u);
}

// The history is part of a state: a run that goes on from step 20 freezes when the first one does.
TEST(OneBitAdamFreezeTest, SettledGoesOnFromAState) {
  RunRanks(2, [](onebitComm_t comm, int) {
    std::vector<float> x(16, 1.0f), other_x(16, 2.0f);
    const onebitOptimizerConfig_t config = Settled(0.999);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    const OptimizerHandle other = MakeOptimizer(comm, other_x, config);
    const auto step = [](const OptimizerHandle& which, float size) {
      std::vector<float> gradient(16, size);
      Check(onebitOptimizerStep(which.get(), gradient.data(), onebitFloat32, 1e-6, 1, 0, nullptr,
                                nullptr));
    };
    for (int i = 0; i < 10; ++i) step(optimizer, 1.5f);
    for (int i = 0; i < 10; ++i) step(optimizer, 1.0f);
    const std::vector<std::byte> blob = StateOf(optimizer.get());
    Check(onebitOptimizerImport(other.get(), blob.data(), blob.size()));
    for (int i = 0; i < 400; ++i) {
      step(optimizer, 1.0f);
      step(other, 1.0f);
      ASSERT_EQ(StatsOf(other).frozen_at, StatsOf(optimizer).frozen_at) << "step " << i + 21;
    }
    EXPECT_GT(StatsOf(optimizer).frozen_at, 100u);
    EXPECT_EQ(other_x, x);
  });
}

TEST(OneBitAdamFreezeTest, SettledIsForTheFirstFreezeOfACorrectedVariance) {
  RunRanks(1, [](onebitComm_t comm, int) {
    std::vector<float> x(16);
    onebitOptimizerConfig_t config = Settled(0.999);
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    EXPECT_EQ(onebitOptimizerRewarm(optimizer.get(), ONEBIT_FREEZE_SETTLED), onebitInvalidArgument);
    config.biasCorrection = 0;
    onebitOptimizer_t refused = nullptr;
    EXPECT_EQ(onebitOptimizerCreate(&refused, comm, x.size(), x.data(), &config),
              onebitInvalidArgument);
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("biasCorrection = 1"),
              std::string::npos);
  });
}

TEST(OneBitAdamFreezeTest, SkippedStepsDoNotCount) {
  const auto spoil = [](size_t call, int rank, std::vector<float>& gradient) {
    if (call % 3 == 1 && rank == 1) gradient[3] = std::numeric_limits<float>::infinity();
  };
  EXPECT_EQ(FrozenAt(Automatic(0.9), 70, spoil), 37u);
  onebitOptimizerConfig_t fixed = DefaultOptimizer();
  fixed.freezeStep = 5;
  EXPECT_EQ(FrozenAt(fixed, 20, spoil), 5u);
}

TEST(OneBitAdamFreezeTest, AutomaticLooksAtCompressedSegmentsOnly) {
  // The dense segment's gradient grows for ever; the other one's is constant.
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 4;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 4;
  segments[1].count = 12;
  onebitOptimizerConfig_t config = Automatic(0.9);
  config.segments = segments;
  config.segmentCount = 2;
  const auto grow = [](size_t call, int, std::vector<float>& gradient) {
    gradient[0] = static_cast<float>(1 + call * call);
  };
  EXPECT_EQ(FrozenAt(config, 45, grow), 37u);
}

TEST(OneBitAdamFreezeTest, VarianceStaysAsFrozen) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.config = PaperOptimizer(compressor, 10);
  training.calls = 10;
  const std::vector<float> at_freeze = Train(training)[0].v;
  training.calls = 25;
  EXPECT_EQ(Train(training)[0].v, at_freeze);
}

TEST(OneBitAdamFreezeTest, CompressedStepsSendLess) {
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.freezeStep = 2;
  Training training;
  training.problem = {.ranks = 2, .dimension = 40'000};
  training.config = config;
  training.calls = 4;
  const std::vector<Record> records = Train(training);
  const auto& results = records[0].results;
  EXPECT_GE(results[1].bytes_sent, 40'000u * 4);
  EXPECT_GT(results[2].bytes_sent, 0u);
  EXPECT_LT(results[2].bytes_sent * 20, results[1].bytes_sent);
  uint64_t total = 0;
  for (const auto& result : results) total += result.bytes_sent;
  EXPECT_EQ(records[0].stats.bytes_sent, total);
}

}  // namespace
}  // namespace onebit::testing
