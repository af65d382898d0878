// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clipping to a common norm, in both stages.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

Training ThreeRanks(const onebitCompressorConfig_t& compressor) {
  Training training;
  training.problem = {.ranks = 3, .dimension = 24};
  training.config = PaperOptimizer(compressor, 12);
  training.calls = 16;
  return training;
}

// sqrt(mean over ranks of |g_r|^2) at step t.
double CommonNorm(const ToyProblem& problem, const std::vector<float>& x, uint64_t t) {
  double sum = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    for (const float g : problem.Gradient(x, rank, t)) sum += double(g) * g;
  }
  return std::sqrt(sum / problem.ranks);
}

TEST(OneBitAdamClippingTest, NormIsCommonToAllRanksInBothStages) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.max_grad_norm = 4;
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);
  for (size_t call = 0; call < training.calls; ++call) {
    const double norm = CommonNorm(training.problem, records[0].x[call], call + 1);
    EXPECT_NEAR(records[0].results[call].grad_norm, norm, 1e-6 * norm);
    EXPECT_GT(norm, training.max_grad_norm);
    for (const Record& record : records) {
      EXPECT_EQ(record.results[call].grad_norm, records[0].results[call].grad_norm);
    }
  }
}

TEST(OneBitAdamClippingTest, ScalesEveryRankByTheSameFactor) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.max_grad_norm = 4;
  const Record clipped = Train(training)[0];

  // Computes the same by hand: scales the gradients before the step.
  training.max_grad_norm = 0;
  training.spoil = [&](size_t call, int, std::vector<float>& gradient) {
    const double factor = 4 / clipped.results[call].grad_norm;
    for (float& g : gradient) g = static_cast<float>(g * factor);
  };
  const Record by_hand = Train(training)[0];
  for (size_t call = 0; call <= training.calls; ++call) {
    EXPECT_LT(MaxDifference(clipped.x[call], by_hand.x[call]), 1e-4) << call;
  }
}

TEST(OneBitAdamClippingTest, LargeLimitOnlyMeasures) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  const Record unclipped = Train(training)[0];
  EXPECT_EQ(unclipped.results[0].grad_norm, -1);
  for (const double limit : {1e6, std::numeric_limits<double>::infinity()}) {
    training.max_grad_norm = limit;
    const Record measured = Train(training)[0];
    EXPECT_EQ(measured.x, unclipped.x);
    EXPECT_GT(measured.results[0].grad_norm, 0);
  }
}

TEST(OneBitAdamClippingTest, ZeroGradientsAreNotScaled) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.max_grad_norm = 1;
  training.spoil = [](size_t, int, std::vector<float>& gradient) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
  };
  const Record record = Train(training)[0];
  EXPECT_EQ(record.results[0].grad_norm, 0);
  EXPECT_EQ(record.results[0].skipped, 0);
  EXPECT_EQ(record.x.back(), record.x.front());
}

TEST(OneBitAdamClippingTest, WithoutLimitTheCompressedStageSendsNothingElse) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  const Training training = ThreeRanks(compressor);
  RunRanks(3, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = training.problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, training.config);
    for (uint64_t t = 1; t <= 20; ++t) {
      onebitCommStats_t before{};
      onebitCommStats_t after{};
      before.size = after.size = sizeof(before);
      Check(onebitCommGetStats(comm, &before));
      std::vector<float> gradient = training.problem.Gradient(x, rank, t);
      onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.05, 1, 0,
                                &result, nullptr));
      Check(onebitCommGetStats(comm, &after));
      EXPECT_EQ(after.dense_calls - before.dense_calls, t <= 12 ? 1u : 0u);
      EXPECT_EQ(after.compressed_calls - before.compressed_calls, t <= 12 ? 0u : 1u);
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, result.bytes_sent);
    }
  });
}

// Without a message ranks cannot agree on a norm, so each uses its own norm and factor.
TEST(ZeroOneAdamClippingTest, ALocalStepIsClippedToItsOwnNorm) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.problem = {.ranks = 3, .dimension = 24};
  training.config.algorithm = onebitAlgorithmZeroOneAdam;
  training.config.compressor = &compressor;
  training.config.beta2 = 0.97;
  training.config.varFreezeStep = 8;
  training.config.localStepScaler = 2;
  training.config.localStepClipper = 4;
  training.calls = 24;
  training.loss_scale = 4;  // the limit applies to scaled gradients
  training.max_grad_norm = 4;
  const std::vector<Record> clipped = Train(training);
  size_t local_steps = 0;
  for (size_t rank = 0; rank < clipped.size(); ++rank) {
    for (size_t call = 0; call < training.calls; ++call) {
      if (clipped[rank].results[call].stage != onebitStageLocal) continue;
      ++local_steps;
      double sum = 0;
      for (const float g :
           training.problem.Gradient(clipped[rank].x[call], static_cast<int>(rank), call + 1)) {
        sum += double{g} * g;
      }
      EXPECT_GT(sum, 16);  // there would be nothing to clip otherwise
      EXPECT_NEAR(clipped[rank].results[call].grad_norm, std::sqrt(sum), 1e-5 * std::sqrt(sum));
    }
  }
  EXPECT_GT(local_steps, 10u);

  // Computes the same by hand: scales the gradients before the step.
  training.max_grad_norm = 0;
  training.spoil = [&](size_t call, int rank, std::vector<float>& gradient) {
    const double norm = clipped[static_cast<size_t>(rank)].results[call].grad_norm;
    for (float& g : gradient) g = static_cast<float>(g * std::min(1.0, 4 / norm));
  };
  const std::vector<Record> by_hand = Train(training);
  for (size_t rank = 0; rank < clipped.size(); ++rank) {
    for (size_t call = 0; call <= training.calls; ++call) {
      EXPECT_LT(MaxDifference(clipped[rank].x[call], by_hand[rank].x[call]), 1e-3)
          << "rank " << rank << ", call " << call;
    }
  }
}

}  // namespace
}  // namespace onebit::testing
