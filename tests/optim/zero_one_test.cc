// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam beyond its recorded trajectories: intervals that end early, and its limit, Adam.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"
#include "tests/support/comm_group.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

onebitOptimizerConfig_t ZeroOne(int64_t var_freeze_step, int64_t local_step_scaler,
                                int64_t local_step_clipper) {
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.beta2 = 0.97;
  config.lrWarmupSteps = 1;
  config.varFreezeStep = var_freeze_step;
  config.localStepScaler = local_step_scaler;
  config.localStepClipper = local_step_clipper;
  return config;
}

// If the variance is refreshed and everything averaged exactly at every step, this is Adam.
TEST(ZeroOneAdamTest, ExactAndAlwaysIsAdam) {
  onebitSegment_t dense = ONEBIT_SEGMENT_INIT;
  dense.count = 16;
  dense.flags = onebitSegmentDense;
  Training training;
  training.calls = 60;
  training.config = ZeroOne(1000, 1000, 16);
  training.config.varUpdateScaler = 1000;
  training.config.weightDecay = 0.01;
  training.config.varianceFloor = 0;
  training.config.segments = &dense;
  training.config.segmentCount = 1;
  const std::vector<Record> zero_one = Train(training);
  ExpectReplicasEqual(zero_one);
  training.config = DefaultOptimizer();
  training.config.beta2 = 0.97;
  training.config.weightDecay = 0.01;
  training.config.freezeStep = ONEBIT_FREEZE_NEVER;
  const std::vector<Record> adam = Train(training);
  for (size_t call = 0; call <= training.calls; ++call) {
    EXPECT_LT(MaxDifference(zero_one[0].x[call], adam[0].x[call]), 2e-5) << call;
  }
}

// The published sanity run: 800 steps, of which 290 send anything and 35 something dense.
TEST(ZeroOneAdamTest, Arrives) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.problem = {.ranks = 4, .dimension = 64, .noise_offset = 5};
  training.calls = 800;
  training.learning_rate = [](uint64_t t) {
    return 0.05 * std::exp2(-static_cast<double>(t) / 100);
  };
  training.config = ZeroOne(60, 100, 8);
  training.config.varianceFloor = 0;
  training.config.compressor = &compressor;
  const std::vector<Record> records = Train(training);
  const onebitOptimizerStats_t& stats = records[0].stats;
  EXPECT_EQ(stats.dense_steps, 35u);
  EXPECT_EQ(stats.compressed_steps, 290u);
  EXPECT_EQ(stats.local_steps, 510u);
  const double excess = training.problem.Loss(records[0].x.back()) - training.problem.LeastLoss();
  RecordProperty("excess_loss", std::to_string(excess));
  EXPECT_LT(excess, 0.1);
}

// Ranks of one problem, driven step by step.
class ZeroOneIntervalTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr double kRate = 0.02;

  // Syncs at every step up to 7, then every 4 steps.
  explicit ZeroOneIntervalTest(uint32_t flags = 0) : group_(kRanks, kPatient) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.count = problem_.dimension;
    segment.flags = flags;
    onebitOptimizerConfig_t config = ZeroOne(8, 1, 4);
    config.segments = &segment;
    config.segmentCount = 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      x_.push_back(problem_.StartPoint());
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      optimizers_.push_back(
          MakeOptimizer(group_.comm(rank), x_[static_cast<size_t>(rank)], config));
    }
  }

  template <typename Body>
  void OnAllRanks(Body body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  }
  // Makes one step on every rank; returns rank 0's result.
  onebitStepResult_t Step(int bad_rank = -1, double rate = kRate) {
    std::vector<onebitStepResult_t> results(kRanks, ONEBIT_STEP_RESULT_INIT);
    OnAllRanks([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      std::vector<float> gradient = problem_.Gradient(x_[r], rank, step_);
      if (rank == bad_rank) gradient[1] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(onebitOptimizerStep(optimizers_[r].get(), gradient.data(), onebitFloat32, rate, 1,
                                    0, &results[r], nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    ++step_;
    for (const onebitStepResult_t& result : results) {
      EXPECT_EQ(result.skipped, results[0].skipped);
      EXPECT_EQ(result.stage, results[0].stage);
      EXPECT_EQ(result.step, results[0].step);
    }
    return results[0];
  }
  // Makes steps up to the first local step, included.
  void StepIntoAnInterval() {
    while (Step().stage != onebitStageLocal) last_synced_ = x_[0];
    EXPECT_NE(x_[0], x_[1]);
  }
  std::vector<float> MomentumOf(int rank) {
    return MomentOf(optimizers_[static_cast<size_t>(rank)].get(), "m", problem_.dimension);
  }
  void ExpectAgreement() {
    for (int rank = 1; rank < kRanks; ++rank) {
      EXPECT_EQ(x_[static_cast<size_t>(rank)], x_[0]) << rank;
    }
  }
  void Sync() {
    OnAllRanks([&](int rank) {
      EXPECT_EQ(onebitOptimizerSync(optimizers_[static_cast<size_t>(rank)].get()), onebitSuccess)
          << onebitGetLastError(nullptr);
    });
  }

  const ToyProblem problem_{.ranks = kRanks, .dimension = 100};
  CommGroup group_;
  std::vector<std::vector<float>> x_;
  std::vector<OptimizerHandle> optimizers_;
  uint64_t step_ = 1;
  std::vector<float> last_synced_;
};

TEST_F(ZeroOneIntervalTest, ABadSumTakesAllRanksBackToTheLastSync) {
  StepIntoAnInterval();
  while (true) {
    const uint64_t next = StatsOf(optimizers_[0]).step + 1;
    const onebitStepResult_t result = Step(1);  // a NaN in a local step counts as 0
    if (result.stage == onebitStageLocal) {
      EXPECT_EQ(result.skipped, 0);
      EXPECT_EQ(result.step, next);
      continue;
    }
    EXPECT_EQ(result.skipped, 1);
    EXPECT_EQ(result.step, next - 1);
    break;
  }
  ExpectAgreement();
  EXPECT_EQ(x_[0], last_synced_);
  // The interval begins again, and ends as usual.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Step().stage, onebitStageLocal);
  EXPECT_EQ(Step().stage, onebitStageCompressed);
  ExpectAgreement();
  EXPECT_NE(x_[0], last_synced_);
}

// Without residuals.
class ZeroOneDenseIntervalTest : public ZeroOneIntervalTest {
 protected:
  ZeroOneDenseIntervalTest() : ZeroOneIntervalTest(onebitSegmentDense) {}
};

// Steps at a negligible rate lead to a sync that moves nothing, unless the discarded sums return.
TEST_F(ZeroOneDenseIntervalTest, DiscardedSumsAreNotInTheNextSync) {
  StepIntoAnInterval();
  while (Step(1).stage == onebitStageLocal) continue;
  ASSERT_EQ(x_[0], last_synced_);
  while (Step(-1, 1e-9).stage == onebitStageLocal) continue;
  ExpectAgreement();
  for (size_t i = 0; i < x_[0].size(); ++i) EXPECT_NEAR(x_[0][i], last_synced_[i], 1e-6) << i;
}

TEST_F(ZeroOneIntervalTest, SyncEndsAnIntervalAndIsFreeBehindIt) {
  StepIntoAnInterval();
  Step();
  Sync();
  ExpectAgreement();
  EXPECT_EQ(MomentumOf(1), MomentumOf(0));
  EXPECT_NE(x_[0], last_synced_);
  const std::vector<float> synced = x_[0];
  const uint64_t bytes = StatsOf(optimizers_[0]).bytes_sent;
  EXPECT_GT(bytes, 0u);
  Sync();
  EXPECT_EQ(x_[0], synced);
  EXPECT_EQ(StatsOf(optimizers_[0]).bytes_sent, bytes);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Step().stage, onebitStageLocal);
  EXPECT_EQ(Step().stage, onebitStageCompressed);
  ExpectAgreement();
}

// Rank 1 is one local step ahead, but lacks the last commit: the ranks agreed to discard an
// interval.
TEST_F(ZeroOneIntervalTest, RebindGoesByWhatWasAgreedOnAndThenBySteps) {
  const auto import_own_state = [&](int rank) {  // resets its count of commits
    const onebitOptimizer_t optimizer = optimizers_[static_cast<size_t>(rank)].get();
    const std::vector<std::byte> state = StateOf(optimizer);
    Check(onebitOptimizerImport(optimizer, state.data(), state.size()));
  };
  StepIntoAnInterval();
  for (int rank = 0; rank < kRanks; ++rank) import_own_state(rank);
  while (Step(1).stage == onebitStageLocal) continue;
  import_own_state(1);
  std::vector<float> gradient = problem_.Gradient(x_[1], 1, step_);
  Check(onebitOptimizerStep(optimizers_[1].get(), gradient.data(), onebitFloat32, kRate, 1, 0,
                            nullptr, nullptr));
  ASSERT_GT(StatsOf(optimizers_[1]).step, StatsOf(optimizers_[0]).step);
  std::vector<UniqueComm> made(kRanks);
  OnAllRanks([&](int rank) {
    onebitComm_t comm = nullptr;
    ASSERT_EQ(onebitCommSplit(group_.comm(rank), 0, 0, &comm, nullptr), onebitSuccess);
    made[static_cast<size_t>(rank)].reset(comm);
    int source = -1;
    EXPECT_EQ(onebitOptimizerRebind(optimizers_[static_cast<size_t>(rank)].get(), comm, &source),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    EXPECT_EQ(source, 0);
  });
  EXPECT_EQ(StatsOf(optimizers_[1]).step, StatsOf(optimizers_[0]).step);
  ExpectAgreement();
  optimizers_.clear();
}

// Ranks were at different steps of an interval when one of them was lost.
TEST_F(ZeroOneIntervalTest, RebindTakesRanksOnFromTheFurthest) {
  StepIntoAnInterval();
  for (int i = 0; i < 2; ++i) {  // local steps are no commits
    std::vector<float> gradient = problem_.Gradient(x_[2], 2, step_);
    Check(onebitOptimizerStep(optimizers_[2].get(), gradient.data(), onebitFloat32, kRate, 1, 0,
                              nullptr, nullptr));
  }
  std::vector<UniqueComm> made(kRanks);
  std::vector<int> sources(kRanks, -1);
  const int lost = 0;
  OnAllRanks([&](int rank) {
    if (rank == lost) return;
    onebitComm_t comm = nullptr;
    ASSERT_EQ(onebitCommShrink(group_.comm(rank), &lost, 1, &comm, nullptr, ONEBIT_SHRINK_ABORT),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    made[static_cast<size_t>(rank)].reset(comm);
    ASSERT_EQ(onebitOptimizerRebind(optimizers_[static_cast<size_t>(rank)].get(), comm,
                                    &sources[static_cast<size_t>(rank)]),
              onebitSuccess)
        << onebitGetLastError(nullptr);
  });
  EXPECT_EQ(sources[1], 1);  // rank 2 has become rank 1
  EXPECT_EQ(StatsOf(optimizers_[1]).step, StatsOf(optimizers_[2]).step);
  EXPECT_EQ(x_[1], x_[2]);
  std::vector<onebitStepResult_t> results(kRanks, ONEBIT_STEP_RESULT_INIT);
  for (int i = 0; i < 9; ++i) {
    OnAllRanks([&](int rank) {
      if (rank == lost) return;
      const auto r = static_cast<size_t>(rank);
      std::vector<float> own = problem_.Gradient(x_[r], rank, 40 + static_cast<uint64_t>(i));
      EXPECT_EQ(onebitOptimizerStep(optimizers_[r].get(), own.data(), onebitFloat32, kRate, 1, 0,
                                    &results[r], nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    if (results[1].stage != onebitStageLocal) {
      EXPECT_EQ(x_[1], x_[2]) << i;
    }
  }
  EXPECT_EQ(results[1].step, results[2].step);
  optimizers_.clear();
}

}  // namespace
}  // namespace onebit::testing
