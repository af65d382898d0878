// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls between the thread that makes them and the one that tells of them.
#include <gtest/gtest.h>

#include "collectives/told_calls.h"

namespace onebit {
namespace {

TEST(ToldCallsTest, ComeOutInTheirOrder) {
  ToldCalls calls;
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < ToldCalls::kRoom; ++i) {
      EXPECT_TRUE(calls.Put({.sequence = round * ToldCalls::kRoom + i}));
    }
    for (uint64_t i = 0; i < ToldCalls::kRoom; ++i) {
      EXPECT_EQ(calls.Take().value().sequence, round * ToldCalls::kRoom + i);
    }
    EXPECT_FALSE(calls.Take().has_value());
  }
}

TEST(ToldCallsTest, TheFirstThatFindsNoRoomIsSaidAndEndsThem) {
  ToldCalls calls;
  for (uint64_t i = 0; i < ToldCalls::kRoom; ++i) EXPECT_TRUE(calls.Put({.sequence = i}));
  EXPECT_FALSE(calls.Put({.sequence = ToldCalls::kRoom}));
  EXPECT_EQ(calls.Take().value().sequence, 0u);
  EXPECT_TRUE(calls.Put({.sequence = ToldCalls::kRoom + 1})) << "said once";
  uint64_t taken = 1;
  while (calls.Take()) ++taken;
  EXPECT_EQ(taken, ToldCalls::kRoom);
}

}  // namespace
}  // namespace onebit
