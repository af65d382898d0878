// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rates of segments that change between steps.
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

void SetRates(const OptimizerRank& optimizer, double lr_scale, double weight_decay) {
  for (size_t i = 0; i < 3; ++i) {
    Check(onebitOptimizerSetRates(optimizer.get(), i, lr_scale, weight_decay));
  }
}

class RatesTest : public ::testing::TestWithParam<OptimizerSubject> {};

TEST_P(RatesTest, ArePartOfTheConfiguration) {
  OptimizerSubject created = GetParam(), changed = GetParam();
  created.config.weightDecay = 0.25;
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank expected(created, comm, rank), actual(changed, comm, rank);
    SetRates(actual, ONEBIT_UNDEF_REAL, 0.25);
    expected.StepUntil(1, 9);
    actual.StepUntil(1, 9);
    EXPECT_EQ(actual.x(), expected.x());
    EXPECT_EQ(actual.copy(), expected.copy());
  });
}

// A power of two, which moves no rounding.
TEST_P(RatesTest, MultiplyTheLearningRateOfLaterSteps) {
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank expected(GetParam(), comm, rank), actual(GetParam(), comm, rank);
    for (uint64_t call = 1; call <= 9; ++call) {
      const double factor = call < 3 ? 1 : 0.25;
      if (call == 3) SetRates(actual, factor, ONEBIT_UNDEF_REAL);
      Check(expected.TryStep(call, 0.05 * factor, nullptr));
      Check(actual.TryStep(call, 0.05, nullptr));
      EXPECT_EQ(actual.x(), expected.x()) << call;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RatesTest,
                         ::testing::Values(SubjectOf("adam", onebitAlgorithmOneBitAdam),
                                           SubjectOf("lamb", onebitAlgorithmOneBitLamb)),
                         [](const auto& info) { return info.param.name; });

TEST(ZeroOneRatesTest, StayDuringAnInterval) {
  const OptimizerSubject subject = SubjectOf("zero_one", onebitAlgorithmZeroOneAdam);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.Step(1);
    SetRates(optimizer, 0.5, 0);
    uint64_t call = 2;
    while (optimizer.Step(call++).stage != onebitStageLocal) ASSERT_LT(call, 20u);
    EXPECT_EQ(onebitOptimizerSetRates(optimizer.get(), 0, 1, 0), onebitInvalidUsage);
    EXPECT_THAT(std::string(onebitGetLastError(nullptr)), HasSubstr("onebitOptimizerSync"));
    Check(onebitOptimizerSync(optimizer.get()));
    SetRates(optimizer, 1, 0);
  });
}

TEST(RatesArgumentsTest, AreChecked) {
  const OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    OptimizerRank expected(subject, comm, rank), actual(subject, comm, rank);
    const auto expect_invalid = [](onebitResult_t result, const std::string& text) {
      EXPECT_EQ(result, onebitInvalidArgument) << text;
      EXPECT_THAT(std::string(onebitGetLastError(nullptr)), HasSubstr(text));
    };
    const onebitOptimizer_t optimizer = actual.get();
    const double infinity = std::numeric_limits<double>::infinity();
    expect_invalid(onebitOptimizerSetRates(nullptr, 0, 1, 0), "optimizer");
    expect_invalid(onebitOptimizerSetRates(optimizer, 3, 1, 0), "segment is 3, but there are 3");
    expect_invalid(onebitOptimizerSetRates(optimizer, 0, -2, 0), "lr_scale is -2");
    expect_invalid(onebitOptimizerSetRates(optimizer, 0, 2, infinity), "weight_decay is inf");
    expected.StepUntil(1, 6);
    actual.StepUntil(1, 6);
    EXPECT_EQ(actual.x(), expected.x());
  });
}

}  // namespace
}  // namespace onebit::testing
