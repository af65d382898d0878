// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The warning about parameters that move much further after the freeze than before it.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/training.h"
#include "tests/support/exported_state.h"

namespace onebit::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kFrozenFrom = 40;

// Gradients hardly change, until some calls multiply them.
Training Steady(onebitAlgorithm_t algorithm) {
  Training training;
  training.calls = 80;
  training.learning_rate = [](uint64_t) { return 1e-6; };
  onebitOptimizerConfig_t& config = training.config;
  config.algorithm = algorithm;
  config.beta1 = 0.5;
  config.beta2 = 0.9;
  if (algorithm == onebitAlgorithmZeroOneAdam) {
    config.varFreezeStep = kFrozenFrom;
    config.varUpdateScaler = kFrozenFrom;
  } else {
    config.freezeStep = kFrozenFrom;
  }
  return training;
}

// Multiplies the gradients of all calls from `first` to before `last`.
void Multiply(Training* training, float factor, size_t first, size_t last) {
  training->spoil = [=](size_t call, int, std::vector<float>& gradient) {
    if (call < first || call >= last) return;
    for (float& g : gradient) g *= factor;
  };
}

class UpdateWatchTest : public ::testing::TestWithParam<onebitAlgorithm_t> {};

TEST_P(UpdateWatchTest, IsQuietInAHealthyRun) {
  EXPECT_THAT(WarningsOf(Steady(GetParam())), IsEmpty());
}

TEST_P(UpdateWatchTest, WarnsOnceOfParametersThatAreThrown) {
  Training training = Steady(GetParam());
  Multiply(&training, 100, kFrozenFrom + 5, training.calls);
  EXPECT_THAT(WarningsOf(training),
              ElementsAre(AllOf(HasSubstr("parameters of segments[0] move by"),
                                HasSubstr("times as far as before the freeze"),
                                HasSubstr("lower the learning rate"), HasSubstr("varianceFloor"))));
}

// A mean over all parameters would hide one element in sixteen.
TEST_P(UpdateWatchTest, NamesTheSegmentThatIsThrown) {
  Training training = Steady(GetParam());
  onebitSegment_t segments[3] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 10;
  segments[1].offset = 10;
  segments[1].count = 1;
  segments[2].offset = 11;
  segments[2].count = training.problem.dimension - 11;
  training.config.segments = segments;
  training.config.segmentCount = 3;
  training.spoil = [](size_t call, int, std::vector<float>& gradient) {
    if (call >= kFrozenFrom + 5) gradient[10] *= 100;
  };
  EXPECT_THAT(WarningsOf(training), ElementsAre(HasSubstr("parameters of segments[1] move by")));
}

TEST_P(UpdateWatchTest, WarnsOnceOfGradientsThatTheFrozenVarianceMakesTooSmall) {
  Training training = Steady(GetParam());
  training.calls = 160;
  Multiply(&training, 0.01f, kFrozenFrom + 5, training.calls);
  EXPECT_THAT(WarningsOf(training),
              ElementsAre(AllOf(HasSubstr("parameters move only 0.0"),
                                HasSubstr("times as far as before the freeze"),
                                HasSubstr("onebitOptimizerRewarm"))));
}

// Parameters move further because the caller wants them to.
TEST_P(UpdateWatchTest, FollowsALearningRateThatRises) {
  Training training = Steady(GetParam());
  training.learning_rate = [](uint64_t t) { return t <= kFrozenFrom ? 1e-8 : 1e-6; };
  EXPECT_THAT(WarningsOf(training), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, UpdateWatchTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmZeroOneAdam),
                         [](const auto& info) {
                           return info.param == onebitAlgorithmOneBitAdam ? "adam" : "zero_one";
                         });

// One rank of a steady training that an optimizer goes on with, in whatever state it is.
struct SteadyRank {
  SteadyRank(onebitComm_t comm, int rank_of_gradients)
      : rank(rank_of_gradients), optimizer(MakeOptimizer(comm, x, training.config)) {}

  // Makes steps up to number `last`, with gradients times `factor`.
  void StepUntil(uint64_t last, float factor = 1) {
    while (StatsOf(optimizer).step < last) {
      std::vector<float> gradient = training.problem.Gradient(x, rank, StatsOf(optimizer).step + 1);
      for (float& g : gradient) g *= factor;
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 1e-6, 1, 0,
                                nullptr, nullptr));
    }
  }

  const Training training = Steady(onebitAlgorithmOneBitAdam);
  const int rank;
  std::vector<float> x = training.problem.StartPoint();
  const OptimizerHandle optimizer;
};

constexpr uint64_t kResumedAt = kFrozenFrom + 10, kThrownAt = kResumedAt + 30,
                   kEnd = kThrownAt + 30;

// A checkpoint does not say how far parameters moved before the freeze.
TEST(UpdateWatchTest, ARunThatGoesOnBehindTheFreezeIsWatched) {
  for (const float factor : {1.0f, 100.0f}) {
    const auto warnings = WarningsOf([factor] {
      RunRanks(2, [factor](onebitComm_t comm, int rank) {
        SteadyRank first(comm, rank), second(comm, rank);
        first.StepUntil(kResumedAt);
        const std::vector<std::byte> state = StateOf(first.optimizer.get());
        Check(onebitOptimizerImport(second.optimizer.get(), state.data(), state.size()));
        second.StepUntil(kThrownAt);
        second.StepUntil(kEnd, factor);
      });
    });
    if (factor == 1) {
      EXPECT_THAT(warnings, IsEmpty());
    } else {
      EXPECT_THAT(warnings, ElementsAre(HasSubstr("times as far as when this run began")));
    }
  }
}

// Rank 0 of the new communicator, which was rank 1, warns instead of the former rank 0.
TEST(UpdateWatchTest, ANewRankZeroWarnsAlone) {
  const auto warnings = WarningsOf([] {
    RunRanks(2, [](onebitComm_t comm, int rank) {
      SteadyRank trainer(comm, rank);
      trainer.StepUntil(kResumedAt);
      onebitComm_t swapped = nullptr;
      Check(onebitCommSplit(comm, 0, 1 - rank, &swapped, nullptr));
      const UniqueComm owner(swapped);
      int source = -1;
      Check(onebitOptimizerRebind(trainer.optimizer.get(), swapped, &source));
      trainer.StepUntil(kThrownAt);
      trainer.StepUntil(kEnd, 100);
    });
  });
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("times as far as when this run began")));
}

// One rank alone, whose steps are exact, is thrown in a step and back some steps later.
std::vector<std::string> WarningsOfAThrowFor(uint64_t steps) {
  Training training = Steady(onebitAlgorithmOneBitAdam);
  training.problem.ranks = 1;
  training.config.beta1 = 0;
  training.config.biasCorrection = 1;
  const uint64_t thrown = kFrozenFrom + 20;
  training.spoil = [=](size_t call, int, std::vector<float>& gradient) {
    const float factor = call == thrown ? 1000 : call == thrown + steps ? -1000 : 1;
    for (float& g : gradient) g *= factor;
  };
  return WarningsOf(training);
}

TEST(UpdateWatchTest, ThreeStepsAreAWarning) {
  EXPECT_THAT(WarningsOfAThrowFor(2), IsEmpty());
  EXPECT_THAT(WarningsOfAThrowFor(3), ElementsAre(HasSubstr("times as far")));
}

}  // namespace
}  // namespace onebit::testing
