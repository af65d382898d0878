// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which waits of two ranks contradict each other.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/wait_records.h"

namespace onebit {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCalls = 7;

Waits Gathering(uint64_t gathers = 2) {
  return {.is_gather = true, .gathers = gathers, .calls = kCalls, .what = "exporting"};
}
Waits Moving(uint64_t calls, uint64_t gathers = 2) {
  return {.is_gather = false, .gathers = gathers, .calls = calls, .what = "allreduce"};
}

bool DoDiffer(const Waits& first, const Waits& second) {
  WaitRecords records(3);
  return !records.Add(2, first) && records.Add(0, second).has_value();
}

TEST(WaitRecordsTest, FindTheDifferenceInEitherOrder) {
  for (const uint64_t calls : {kCalls, kCalls + 1}) {
    EXPECT_TRUE(DoDiffer(Gathering(), Moving(calls)));
    EXPECT_TRUE(DoDiffer(Moving(calls), Gathering()));
  }
}

TEST(WaitRecordsTest, NameBothRanksAndTheirCalls) {
  WaitRecords records(3);
  EXPECT_FALSE(records.Add(2, Gathering()));
  const auto failure = records.Add(0, Moving(kCalls));
  ASSERT_TRUE(failure.has_value());
  EXPECT_TRUE(failure->is_of_group);
  EXPECT_EQ(failure->cause.code(), Code::kMismatch);
  EXPECT_THAT(failure->cause.text(), HasSubstr("rank 2 is exporting, rank 0 in allreduce;"));
}

TEST(WaitRecordsTest, ARankThatIsLateIsNoDifference) {
  EXPECT_FALSE(DoDiffer(Gathering(), Moving(kCalls - 1)));
  EXPECT_FALSE(DoDiffer(Moving(kCalls - 1), Gathering()));
}

TEST(WaitRecordsTest, CallsBeforeAndAfterAnotherGatherAreNotCompared) {
  EXPECT_FALSE(DoDiffer(Gathering(2), Moving(kCalls, 3)));
  EXPECT_FALSE(DoDiffer(Moving(kCalls, 1), Gathering(2)));
}

TEST(WaitRecordsTest, ARankThatWaitsNoMoreIsNotCompared) {
  WaitRecords records(3);
  EXPECT_FALSE(records.Add(2, Gathering()));
  EXPECT_FALSE(records.Add(2, {.gathers = 2, .what = {}}));
  EXPECT_FALSE(records.Add(0, {.is_gather = true, .gathers = 2, .what = "splitting"}));
  EXPECT_FALSE(records.Add(1, {.gathers = 2, .what = {}}));
  EXPECT_TRUE(records.Add(2, Moving(kCalls)));
}

TEST(WaitRecordsTest, CallsOfOneKindAreNotCompared) {
  EXPECT_FALSE(DoDiffer(Gathering(), Gathering()));
  EXPECT_FALSE(DoDiffer(Moving(kCalls), Moving(kCalls + 1)));
}

}  // namespace
}  // namespace onebit
