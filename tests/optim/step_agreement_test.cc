// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Values that ranks compare although they do not shape calls: a difference is an error that names
// it, before anything has changed.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/training.h"
#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr uint64_t kFreezeStep = 3;

struct StepArguments {
  double learning_rate = 0.05;
  double grad_scale = 1;
  double max_grad_norm = 0;
};

class StepAgreementTest : public ::testing::Test {
 protected:
  using Change = std::function<void(onebitOptimizerConfig_t&, std::vector<onebitSegment_t>&,
                                    std::vector<float>& x)>;

  // Makes optimizers, that of rank 2 with a change.
  void Create(const Change& change, onebitAlgorithm_t algorithm = onebitAlgorithmOneBitAdam,
              uint64_t freeze_step = kFreezeStep) {
    group_.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      x_[r] = problem_.StartPoint();
      std::vector<onebitSegment_t> segments(2, onebitSegment_t(ONEBIT_SEGMENT_INIT));
      segments[0].count = 5;
      segments[1].offset = 5;
      segments[1].count = problem_.dimension - 5;
      onebitOptimizerConfig_t config = DefaultOptimizer();
      config.algorithm = algorithm;
      if (algorithm == onebitAlgorithmZeroOneAdam) {
        config.varFreezeStep = freeze_step;
      } else {
        config.freezeStep = freeze_step;
      }
      if (rank == 2) change(config, segments, x_[r]);
      config.segments = segments.data();
      config.segmentCount = segments.size();
      optimizers_[r] = MakeOptimizer(group_.comm(rank), x_[r], config);
    });
  }

  // Makes a step, on rank 2 with its own arguments.
  std::vector<Outcome> Step(const StepArguments& of_rank_2 = {}) {
    return group_.Call([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      const StepArguments arguments = rank == 2 ? of_rank_2 : StepArguments{};
      std::vector<float> gradient = problem_.Gradient(x_[r], rank, 1);
      return onebitOptimizerStep(optimizers_[r].get(), gradient.data(), onebitFloat32,
                                 arguments.learning_rate, arguments.grad_scale,
                                 arguments.max_grad_norm, nullptr, nullptr);
    });
  }

  static void ExpectMismatch(const std::vector<Outcome>& outcomes, const std::string& name,
                             const std::string& here, const std::string& there) {
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitMismatch) << name;
      EXPECT_THAT(outcome.text, AllOf(HasSubstr(name), HasSubstr("rank 0 has " + here),
                                      HasSubstr("rank 2 " + there)));
    }
  }
  static void ExpectSuccess(const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
  }

  const ToyProblem problem_{.ranks = kRanks};
  CommGroup group_{kRanks};
  std::vector<float> x_[kRanks];
  OptimizerHandle optimizers_[kRanks];
};

constexpr auto kNoChange = [](auto&, auto&, auto&) {};

TEST_F(StepAgreementTest, ArgumentsOfTheFirstStep) {
  Create(kNoChange);
  ExpectMismatch(Step({.learning_rate = 0.25}), "learning_rate", "0.05", "0.25");
  ExpectMismatch(Step({.grad_scale = 0.5}), "grad_scale", "1", "0.5");
  ExpectMismatch(Step({.max_grad_norm = 2}), "max_grad_norm", "0", "2");
  for (const std::vector<float>& x : x_) EXPECT_EQ(x, problem_.StartPoint());
  ExpectSuccess(Step());  // the communicator is healthy
  EXPECT_EQ(StatsOf(optimizers_[2]).step, 1u);
}

TEST_F(StepAgreementTest, TheRateIsComparedAgainAfterTheFreeze) {
  Create(kNoChange);
  for (uint64_t step = 1; step <= kFreezeStep; ++step) ExpectSuccess(Step());
  ExpectMismatch(Step({.learning_rate = 0.25}), "learning_rate", "0.05", "0.25");
  ExpectSuccess(Step());
}

TEST_F(StepAgreementTest, RatesThatPartLaterAreFoundWithin64Steps) {
  for (const uint64_t freeze_step : {kFreezeStep, uint64_t{200}}) {
    Create(kNoChange, onebitAlgorithmOneBitAdam, freeze_step);
    // The last step that compares because it begins a stage.
    const uint64_t first = freeze_step == kFreezeStep ? kFreezeStep + 1 : 1;
    for (uint64_t step = 1; step <= first; ++step) ExpectSuccess(Step());
    for (uint64_t step = first + 1; step < first + 64; ++step) {
      ExpectSuccess(Step({.learning_rate = 0.25}));
    }
    ExpectMismatch(Step({.learning_rate = 0.25}), "learning_rate", "0.05", "0.25");
    ExpectMismatch(Step({.learning_rate = 0.25}), "learning_rate", "0.05", "0.25");
    EXPECT_EQ(StatsOf(optimizers_[0]).step, first + 63);
    ExpectSuccess(Step());
  }
}

TEST_F(StepAgreementTest, MembersOfTheConfiguration) {
  Create([](auto& config, auto&, auto&) { config.eps = 0.125; });
  ExpectMismatch(Step(), "eps", "1e-08", "0.125");
  Create([](auto& config, auto&, auto&) { config.clipNorm = onebitClipAverage; });
  ExpectMismatch(Step(), "clipNorm", "0", "1");
  Create([](auto& config, auto&, auto&) { config.weightDecay = 0.5; });
  ExpectMismatch(Step(), "segments[0].weightDecay", "0", "0.5");
  Create([](auto&, auto& segments, auto&) { segments[1].lrScale = 2; });
  ExpectMismatch(Step(), "segments[1].lrScale", "1", "2");
  Create([](auto&, auto& segments, auto&) { segments.pop_back(), segments[0].count = 16; });
  ExpectMismatch(Step(), "segmentCount", "2", "1");
}

TEST_F(StepAgreementTest, InitialParameters) {
  for (const onebitAlgorithm_t algorithm :
       {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb, onebitAlgorithmZeroOneAdam}) {
    Create([](auto&, auto&, auto& x) { x[9] += 1; }, algorithm);
    ExpectMismatch(Step(), "segments[1]", "digest", "digest");
    EXPECT_THAT(Step()[0].text, HasSubstr("onebitBroadcast"));
  }
}

}  // namespace
}  // namespace onebit::testing
