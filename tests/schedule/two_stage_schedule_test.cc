// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of 1-bit Adam and 1-bit LAMB.
#include "schedule/two_stage_schedule.h"

#include <string>

#include <gtest/gtest.h>

namespace onebit {
namespace {

std::string KindsOf(TwoStageSchedule schedule, int count) {
  std::string kinds;
  for (int i = 0; i < count; ++i) {
    kinds.push_back(LetterOf(schedule.Next()));
    schedule.Commit(1.0);
  }
  return kinds;
}

TEST(TwoStageScheduleTest, PaperFreezesAfterItsDenseSteps) {
  EXPECT_EQ(KindsOf({Variant::kPaper, FreezeRule::After(1)}, 5), "F1111");
  EXPECT_EQ(KindsOf({Variant::kPaper, FreezeRule::After(4)}, 8), "FFFF1111");
  EXPECT_EQ(KindsOf({Variant::kPaper, FreezeRule::After(INT64_MAX)}, 5), "FFFFF");
}

TEST(TwoStageScheduleTest, DeepSpeedSwallowsOneOfThem) {
  EXPECT_EQ(KindsOf({Variant::kDeepSpeed, FreezeRule::After(2)}, 5), "iF111");
  EXPECT_EQ(KindsOf({Variant::kDeepSpeed, FreezeRule::After(4)}, 8), "iFFF1111");
}

TEST(TwoStageScheduleTest, AutomaticRuleAsksForTheVarianceUntilTheFreeze) {
  TwoStageSchedule schedule(Variant::kPaper, FreezeRule::Automatic(0.0, 3));
  std::string kinds;
  for (const double sum : {1.0, 2.0, 4.0, 8.0, 8.0, 100.0}) {
    EXPECT_EQ(schedule.needs_variance_sum(), kinds.size() < 5) << kinds;
    EXPECT_EQ(schedule.state().frozen_at, kinds.size() < 5 ? 0u : 5u);
    kinds.push_back(LetterOf(schedule.Next()));
    schedule.Commit(sum);
  }
  EXPECT_EQ(kinds, "FFFFF1");
  EXPECT_EQ(schedule.state().step, 6u);
}

}  // namespace
}  // namespace onebit
