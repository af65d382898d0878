// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps at which ranks synchronise.
#include "schedule/sync_schedule.h"

#include <string>

#include <gtest/gtest.h>

namespace onebit {
namespace {

// One character per step: '1' sync, '.' local.
std::string StepsOf(const SyncSchedule& schedule, uint64_t steps) {
  std::string text;
  std::optional<uint64_t> last_sync;
  for (uint64_t step = 0; step < steps; ++step) {
    const bool is_sync = schedule.IsSync(step, last_sync);
    text.push_back(is_sync ? '1' : '.');
    if (is_sync) last_sync = step;
  }
  return text;
}

// Worked by hand from the paper's rule: intervals 1, 2, 4, 8 from step 40 on.
TEST(SyncScheduleTest, IntervalsDoubleFromTheLastSyncOn) {
  const SyncSchedule schedule = {
      .warmup_steps = 40, .base_interval = 1, .double_every = 16, .max_interval = 8};
  EXPECT_EQ(StepsOf(schedule, 100),
            "1111111111"
            "1111111111"
            "1111111111"
            "1111111111"
            "1111111111"
            "111111.1.1"
            ".1.1.1.1.1"
            ".1...1...1"
            "...1...1.."
            ".....1....");
}

TEST(SyncScheduleTest, FixedIntervalWithoutWarmUp) {
  EXPECT_EQ(
      StepsOf({.warmup_steps = 0, .base_interval = 4, .double_every = 0, .max_interval = 4}, 12),
      "...1...1...1");
  EXPECT_EQ(
      StepsOf({.warmup_steps = 3, .base_interval = 3, .double_every = 0, .max_interval = 9}, 12),
      "111..1..1..1");
  EXPECT_EQ(StepsOf({}, 5), "11111");
}

TEST(SyncScheduleTest, IntervalNeverExceedsItsLimit) {
  const SyncSchedule schedule = {
      .warmup_steps = 1, .base_interval = 3, .double_every = 1, .max_interval = 10};
  EXPECT_EQ(schedule.IntervalAt(0), 1u);
  EXPECT_EQ(schedule.IntervalAt(1), 3u);
  EXPECT_EQ(schedule.IntervalAt(2), 6u);
  EXPECT_EQ(schedule.IntervalAt(3), 10u);
  EXPECT_EQ(schedule.IntervalAt(UINT64_MAX), 10u);
  const SyncSchedule huge = {
      .warmup_steps = 0, .base_interval = 1, .double_every = 1, .max_interval = UINT64_MAX};
  EXPECT_EQ(huge.IntervalAt(63), uint64_t{1} << 63);
  EXPECT_EQ(huge.IntervalAt(64), UINT64_MAX);
  EXPECT_EQ(huge.IntervalAt(UINT64_MAX), UINT64_MAX);
}

}  // namespace
}  // namespace onebit
