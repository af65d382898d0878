// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps after which a run is evaluated.
#include "perf/train_text/evaluation_schedule.h"

#include <vector>

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

std::vector<int> DueSteps(double every_percent, int steps) {
  const EvaluationSchedule schedule{.every_percent = every_percent, .steps = steps};
  std::vector<int> due;
  for (int done = 1; done <= steps; ++done) {
    if (schedule.IsDue(done)) due.push_back(done);
  }
  return due;
}

TEST(EvaluationScheduleTest, IsNeverDueUnlessAskedFor) { EXPECT_TRUE(DueSteps(0, 100).empty()); }

TEST(EvaluationScheduleTest, ComesAtEqualDistancesAndAtTheEnd) {
  EXPECT_EQ(DueSteps(20, 50), (std::vector<int>{10, 20, 30, 40, 50}));
  EXPECT_EQ(DueSteps(2, 500).size(), 50U);
  EXPECT_EQ(DueSteps(2, 500).front(), 10);
  EXPECT_EQ(DueSteps(100, 7), (std::vector<int>{7}));
}

TEST(EvaluationScheduleTest, RoundsUpWherePercentsAreNoWholeSteps) {
  EXPECT_EQ(DueSteps(30, 10), (std::vector<int>{3, 6, 9, 10}));
  EXPECT_EQ(DueSteps(25, 10), (std::vector<int>{3, 5, 8, 10}));
  // A third of a percent, which has no exact binary representation.
  EXPECT_EQ(DueSteps(100.0 / 3, 9), (std::vector<int>{3, 6, 9}));
}

TEST(EvaluationScheduleTest, ComesAfterEveryStepOfAShortRun) {
  EXPECT_EQ(DueSteps(2, 5), (std::vector<int>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace onebit::train
