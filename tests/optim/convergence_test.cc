// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Training converges: 4 ranks, 64 parameters, a decaying learning rate.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

// Loss above the minimum after 800 steps, of which 60 are dense.
double ExcessLoss(const onebitCompressorConfig_t& compressor, int64_t freeze_step = 60) {
  Training training;
  training.problem = {.ranks = 4, .dimension = 64, .noise_offset = 5};
  training.config = PaperOptimizer(compressor, freeze_step);
  training.calls = 800;
  training.learning_rate = [](uint64_t t) {
    return 0.05 * std::exp2(-static_cast<double>(t) / 100);
  };
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);
  const double excess = training.problem.Loss(records[0].x.back()) - training.problem.LeastLoss();
  ::testing::Test::RecordProperty(
      compressor.scaleRule == onebitScaleL1 ? "excess_loss_l1" : "excess_loss_l2",
      std::to_string(excess));
  return excess;
}

TEST(OneBitAdamConvergenceTest, AdamArrives) {
  EXPECT_LT(ExcessLoss(PaperCompressor(), ONEBIT_FREEZE_NEVER), 1e-5);
}

TEST(OneBitAdamConvergenceTest, ErrorFeedbackArrives) {
  EXPECT_LT(ExcessLoss(PaperCompressor(onebitScaleL2)), 1e-2);
  EXPECT_LT(ExcessLoss(PaperCompressor(onebitScaleL1)), 2e-2);
}

TEST(OneBitAdamConvergenceTest, PlainSignDoesNot) {
  EXPECT_GT(ExcessLoss(PaperCompressor(onebitScaleL2, onebitModePlain)), 0.1);
  EXPECT_GT(ExcessLoss(PaperCompressor(onebitScaleL1, onebitModePlain)), 0.1);
}

TEST(OneBitAdamConvergenceTest, DefaultsArrive) {
  Training training;
  training.problem = {.ranks = 3, .dimension = 200, .noise_offset = 5};
  training.config.beta2 = 0.97;  // freezes by itself within the run
  training.calls = 800;
  training.learning_rate = [](uint64_t t) {
    return 0.05 * std::exp2(-static_cast<double>(t) / 100);
  };
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);
  EXPECT_GT(records[0].stats.frozen_at, 33u);
  EXPECT_GT(records[0].stats.compressed_steps, 200u);
  EXPECT_LT(training.problem.Loss(records[0].x.back()) - training.problem.LeastLoss(), 5e-2);
}

}  // namespace
}  // namespace onebit::testing
