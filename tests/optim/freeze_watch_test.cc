// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warnings about a freeze at a bad time: each once, on rank 0, with what to set.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FreezeWatchTest : public ::testing::TestWithParam<onebitAlgorithm_t> {
 protected:
  FreezeWatchTest() {
    training_.config.algorithm = GetParam();
    training_.config.beta2 = 0.9;  // averages over 10 steps
    training_.config.beta1 = 0.5;
    training_.learning_rate = [](uint64_t) { return 1e-6; };  // gradients hardly change
  }

  std::vector<std::string> Warnings() { return WarningsOf(training_); }

  Training training_;  // 2 ranks, 16 elements, 30 steps
};

TEST_P(FreezeWatchTest, WarnsOfFarTooFewDenseSteps) {
  training_.config.beta2 = 0.999;
  training_.config.freezeStep = 100;
  training_.config.lrWarmupSteps = 250;
  training_.calls = 1;
  EXPECT_THAT(Warnings(), ElementsAre(AllOf(HasSubstr("after 100 steps"), HasSubstr("over 1000"),
                                            HasSubstr("freezeStep"))));
}

// Gradients double at step 5: v is 0.271 before and 0.9^3 0.271 + 4 * 0.271 = 1.28 after 3 of them.
TEST_P(FreezeWatchTest, WarnsOfAVarianceThatStillMoves) {
  training_.config.freezeStep = 6;
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    for (float& g : gradient) g = call < 3 ? 1.0f : 2.0f;
  };
  EXPECT_THAT(Warnings(),
              ElementsAre(AllOf(HasSubstr("frozen early: the variance changed by 373 %"),
                                HasSubstr("over the last 3 steps of 6"), HasSubstr("freezeStep"))));
}

// Without a correction v grows by up to twice from half of its updates to all of them.
TEST_P(FreezeWatchTest, IsQuietWhereOnlyTheBiasMoves) {
  training_.config.freezeStep = 4;
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (float& g : gradient) g = 1;
  };
  EXPECT_THAT(Warnings(), IsEmpty());
}

// The change over the last window counts: no single step changes much.
TEST_P(FreezeWatchTest, WarnsOfAVarianceThatFallsSlowly) {
  training_.config.biasCorrection = 1;
  training_.config.freezeStep = 25;
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    for (float& g : gradient) g *= std::pow(0.9f, static_cast<float>(call));
  };
  EXPECT_THAT(Warnings(), ElementsAre(AllOf(HasSubstr("frozen early"),
                                            HasSubstr("over the last 10 steps of 25"),
                                            HasSubstr("raise freezeStep"))));
}

TEST_P(FreezeWatchTest, WarnsOfAnAutomaticFreezeThatKeepsWaiting) {
  training_.calls = 160;
  // v never settles, because gradients grow.
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    for (float& g : gradient) g *= 1 + static_cast<float>(call * call);
  };
  EXPECT_THAT(Warnings(),
              ElementsAre(AllOf(HasSubstr("not frozen after 101 steps"),
                                HasSubstr("over the last 10"), HasSubstr("freezeStep"))));
}

TEST_P(FreezeWatchTest, IsQuietOtherwise) {
  training_.config.freezeStep = 29;
  EXPECT_THAT(Warnings(), IsEmpty());
  training_.config.freezeStep = ONEBIT_FREEZE_NEVER;
  EXPECT_THAT(Warnings(), IsEmpty());
  training_.config.freezeStep = ONEBIT_FREEZE_AUTOMATIC;
  training_.calls = 160;
  EXPECT_THAT(Warnings(), IsEmpty());
}

// 0/1 Adam as a new user set it, who lost 8 to 27 % of the loss.
class RefreshWatchTest : public ::testing::Test {
 protected:
  RefreshWatchTest() {
    onebitOptimizerConfig_t& config = training_.config;
    config.algorithm = onebitAlgorithmZeroOneAdam;
    config.beta2 = 0.99;
    config.lrWarmupSteps = 20;
    config.varUpdateScaler = 4;
    config.localStepClipper = 8;
    training_.learning_rate = [](uint64_t) { return 1e-6; };
  }

  Training training_;
};

TEST_F(RefreshWatchTest, WarnsOfFarTooFewRefreshes) {
  EXPECT_THAT(
      WarningsOf(training_),
      ElementsAre(AllOf(HasSubstr("refreshed 10 times up to step 20"), HasSubstr("over 100"),
                        HasSubstr("3.2 times as large"), HasSubstr("lower beta2"),
                        HasSubstr("varFreezeStep"), HasSubstr("varUpdateScaler"))));
}

// v is refreshed 10 times in 20 steps, and 25 times in 300.
TEST_F(RefreshWatchTest, WarnsOfAShortWarmup) {
  training_.config.lrWarmupSteps = 10;
  training_.config.varFreezeStep = 300;
  EXPECT_THAT(WarningsOf(training_),
              ElementsAre(AllOf(HasSubstr("warm-up of 10 steps is too short for beta2 = 0.99"),
                                HasSubstr("raise varUpdateScaler"))));
}

TEST_F(RefreshWatchTest, WarnsOfAVarianceThatStillMoves) {
  training_.config.beta2 = 0.95;
  training_.spoil = [](size_t call, int, std::vector<float>& gradient) {
    for (float& g : gradient) g *= 1 + static_cast<float>(call) / 20;
  };
  EXPECT_THAT(WarningsOf(training_), ElementsAre(AllOf(HasSubstr("frozen early"),
                                                       HasSubstr("over the last 5 refreshes of 10"),
                                                       HasSubstr("raise varFreezeStep"))));
}

TEST_F(RefreshWatchTest, IsQuietOtherwise) {
  training_.config.lrWarmupSteps = 40;
  training_.config.varFreezeStep = 100;
  training_.config.varUpdateScaler = 16;
  training_.calls = 110;
  EXPECT_THAT(WarningsOf(training_), IsEmpty());
}

TEST(ShortWarmupTest, WarnsWhereVarianceIsStillSmall) {
  Training training;
  training.calls = 1;
  training.config.freezeStep = ONEBIT_FREEZE_NEVER;
  training.config.lrWarmupSteps = 20;  // beta2 is 0.999
  EXPECT_THAT(WarningsOf(training), IsEmpty()) << "nothing is compressed";
  training.config.freezeStep = 500;
  EXPECT_THAT(WarningsOf(training),
              ElementsAre(AllOf(HasSubstr("warm-up of 20 steps is too short for beta2 = 0.999"),
                                HasSubstr("6.2 times"), HasSubstr("over 250 steps or more"),
                                HasSubstr("biasCorrection"))));
  training.config.biasCorrection = 1;
  EXPECT_THAT(WarningsOf(training), IsEmpty());
  training.config.biasCorrection = 0;
  training.config.lrWarmupSteps = 250;
  EXPECT_THAT(WarningsOf(training), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, FreezeWatchTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb),
                         [](const auto& info) {
                           return info.param == onebitAlgorithmOneBitAdam ? "adam" : "lamb";
                         });

}  // namespace
}  // namespace onebit::testing
