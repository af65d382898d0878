// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The learning rate along a run.
#include "perf/train_text/lr_schedule.h"

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

TEST(LrScheduleTest, RisesLinearlyToThePeak) {
  const LrSchedule schedule{.peak = 4e-3, .warmup_steps = 40, .steps = 500};
  EXPECT_DOUBLE_EQ(schedule.Rate(0), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.Rate(19), 2e-3);
  EXPECT_DOUBLE_EQ(schedule.Rate(39), 4e-3);
}

TEST(LrScheduleTest, FallsByHalfACosineToZero) {
  const LrSchedule schedule{.peak = 4e-3, .warmup_steps = 40, .steps = 500};
  EXPECT_DOUBLE_EQ(schedule.Rate(40), 4e-3);
  EXPECT_NEAR(schedule.Rate(40 + 115), 4e-3 * (0.5 + std::sqrt(0.125)), 1e-15);
  EXPECT_NEAR(schedule.Rate(40 + 230), 2e-3, 1e-15);
  EXPECT_GT(schedule.Rate(499), 0);
  EXPECT_NEAR(schedule.Rate(500), 0, 1e-15);
}

TEST(LrScheduleTest, WithoutWarmupBeginsAtThePeak) {
  const LrSchedule schedule{.peak = 1, .warmup_steps = 0, .steps = 10};
  EXPECT_DOUBLE_EQ(schedule.Rate(0), 1);
}

TEST(LrScheduleTest, ARunShorterThanTheWarmupNeverReachesThePeak) {
  const LrSchedule schedule{.peak = 1, .warmup_steps = 40, .steps = 20};
  EXPECT_DOUBLE_EQ(schedule.Rate(19), 0.5);
}

TEST(LrScheduleTest, AWarmupOfTheWholeRunEndsAtThePeak) {
  const LrSchedule schedule{.peak = 1, .warmup_steps = 20, .steps = 20};
  EXPECT_DOUBLE_EQ(schedule.Rate(19), 1);
}

}  // namespace
}  // namespace onebit::train
