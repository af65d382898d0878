// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warnings about a freeze at a bad time: each once, on rank 0, with what to set.
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
  training_.calls = 1;
  EXPECT_THAT(Warnings(), ElementsAre(AllOf(HasSubstr("after 100 steps"), HasSubstr("over 1000"),
                                            HasSubstr("freezeStep"))));
}

// Without a correction v has reached 0.41 of its value after 5 steps, and 0.34 after 4.
TEST_P(FreezeWatchTest, WarnsOfAVarianceThatStillMoves) {
  training_.config.freezeStep = 5;
  EXPECT_THAT(Warnings(),
              ElementsAre(AllOf(HasSubstr("after 5 steps"), HasSubstr("% over the last 1"),
                                HasSubstr("freezeStep"))));
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

INSTANTIATE_TEST_SUITE_P(Algorithms, FreezeWatchTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb),
                         [](const auto& info) {
                           return info.param == onebitAlgorithmOneBitAdam ? "adam" : "lamb";
                         });

}  // namespace
}  // namespace onebit::testing
