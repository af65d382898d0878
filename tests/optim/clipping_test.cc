// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clipping to a common norm, in both stages.
#include <algorithm>
#include <cmath>
#include <functional>
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
      const bool compares = t == 1 || t == 13;  // before the first step of each stage
      EXPECT_EQ(after.dense_calls - before.dense_calls, (t <= 12 ? 1u : 0u) + (compares ? 1 : 0));
      EXPECT_EQ(after.compressed_calls - before.compressed_calls, t <= 12 ? 0u : 1u);
      if (compares) continue;  // its bytes are not the step's
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, result.bytes_sent);
    }
  });
}

// ----------------------------------------------------------------- by the norm of the average

double NormOf(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

// The norm of elements [begin, end) of the average of all ranks' gradients at step t.
double AverageNorm(const ToyProblem& problem, const std::vector<float>& x, uint64_t t, size_t begin,
                   size_t end) {
  std::vector<float> average(problem.dimension);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const std::vector<float> gradient = problem.Gradient(x, rank, t);
    for (size_t i = begin; i < end; ++i)
      average[i] += gradient[i] / static_cast<float>(problem.ranks);
  }
  return NormOf(average);
}

class ClipAverageTest : public ::testing::Test {
 protected:
  static constexpr size_t kFreezeStep = 12;
  static constexpr double kLimit = 4;

  ClipAverageTest() {
    training_.config.clipNorm = onebitClipAverage;
    training_.max_grad_norm = kLimit;
  }

  // The same, with gradients that were scaled by hand.
  void ExpectSameByHand(
      const std::vector<Record>& clipped,
      const std::function<double(size_t call, int rank, size_t element)>& factor) {
    Training by_hand = training_;
    by_hand.max_grad_norm = 0;
    by_hand.spoil = [&](size_t call, int rank, std::vector<float>& gradient) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = static_cast<float>(gradient[i] * factor(call, rank, i));
      }
    };
    const std::vector<Record> expected = Train(by_hand);
    for (size_t call = 0; call <= training_.calls; ++call) {
      EXPECT_LT(MaxDifference(clipped[0].x[call], expected[0].x[call]), 1e-3) << call;
    }
  }

  const onebitCompressorConfig_t compressor_ = PaperCompressor();
  Training training_ = ThreeRanks(compressor_);
};

TEST_F(ClipAverageTest, DenseStepsLimitTheAverageAndOthersTheRanksOwn) {
  const std::vector<Record> clipped = Train(training_);
  ExpectReplicasEqual(clipped);
  for (size_t call = 0; call < training_.calls; ++call) {
    const std::vector<float>& x = clipped[0].x[call];
    for (int rank = 0; rank < 3; ++rank) {
      const double norm = call < kFreezeStep
                              ? AverageNorm(training_.problem, x, call + 1, 0, 24)
                              : NormOf(training_.problem.Gradient(x, rank, call + 1));
      EXPECT_NEAR(clipped[static_cast<size_t>(rank)].results[call].grad_norm, norm, 1e-5 * norm);
    }
  }
  EXPECT_GT(clipped[0].results[0].grad_norm, kLimit);
  ExpectSameByHand(clipped, [&](size_t call, int rank, size_t) {
    const double norm = clipped[static_cast<size_t>(rank)].results[call].grad_norm;
    return std::min(1.0, kLimit / norm);
  });
}

TEST_F(ClipAverageTest, ADenseSegmentIsLimitedByItsOwnAverage) {
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 10;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 10;
  segments[1].count = 14;
  training_.config.segments = segments;
  training_.config.segmentCount = 2;
  const std::vector<Record> clipped = Train(training_);
  ExpectReplicasEqual(clipped);
  ExpectSameByHand(clipped, [&](size_t call, int rank, size_t element) {
    const bool has_own_limit = call >= kFreezeStep && element < 10;
    const double norm = has_own_limit
                            ? AverageNorm(training_.problem, clipped[0].x[call], call + 1, 0, 10)
                            : clipped[static_cast<size_t>(rank)].results[call].grad_norm;
    return std::min(1.0, kLimit / norm);
  });
}

TEST_F(ClipAverageTest, SendsNothingForIt) {
  const std::vector<Record> clipped = Train(training_);
  training_.max_grad_norm = 0;
  const std::vector<Record> unclipped = Train(training_);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(clipped[rank].comm_bytes, unclipped[rank].comm_bytes);
  }
}

TEST_F(ClipAverageTest, LargeLimitOnlyMeasures) {
  training_.max_grad_norm = 0;
  const std::vector<std::vector<float>> unclipped = Train(training_)[0].x;
  training_.max_grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Train(training_)[0].x, unclipped);
}

// A norm that only one rank has measured must not decide on that rank alone.
TEST_F(ClipAverageTest, ARankWhoseNormOverflowsMakesAllSkip) {
  for (const float huge : {1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    training_.spoil = [huge](size_t call, int rank, std::vector<float>& gradient) {
      if (rank == 1 && (call == 4 || call == 14)) gradient[3] = huge;
    };
    const std::vector<Record> records = Train(training_);
    ExpectReplicasEqual(records);
    for (const Record& record : records) {
      for (size_t call = 0; call < training_.calls; ++call) {
        EXPECT_EQ(record.results[call].skipped, call == 4 || call == 14 ? 1 : 0) << call;
      }
    }
  }
}

// Momenta by the norm of each rank, the variance by that of the average.
TEST_F(ClipAverageTest, ZeroOneAdamStaysInAgreement) {
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 10;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 10;
  segments[1].count = 14;
  for (const int32_t feeds_momentum : {0, 1}) {
    training_.config = DefaultOptimizer();
    training_.config.clipNorm = onebitClipAverage;
    training_.config.algorithm = onebitAlgorithmZeroOneAdam;
    training_.config.varFreezeStep = 9;
    training_.config.localStepScaler = 4;
    training_.config.localStepClipper = 4;
    training_.config.denseStepFeedsMomentum = feeds_momentum;
    training_.config.segments = segments;
    training_.config.segmentCount = 2;
    training_.calls = 30;
    const std::vector<Record> records = Train(training_);
    for (size_t call = 0; call < training_.calls; ++call) {
      const int32_t stage = records[0].results[call].stage;
      if (stage == onebitStageLocal) continue;
      for (const Record& record : records) EXPECT_EQ(record.x[call + 1], records[0].x[call + 1]);
      if (stage == onebitStageCompressed) continue;
      const double norm = AverageNorm(training_.problem, records[0].x[call], call + 1, 0, 24);
      EXPECT_NEAR(records[0].results[call].grad_norm, norm, 1e-5 * norm) << call;
    }
    EXPECT_EQ(records[0].v, records[2].v);
  }
}

// -------------------------------------------------------------------------------- local steps

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
