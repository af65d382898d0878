// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bursts add up to the iterations asked for and stay short enough.
#include "perf/common/bursts.h"

#include <gtest/gtest.h>

#include <climits>

namespace onebit::perf {
namespace {

using Lengths = std::vector<int>;

TEST(BurstsTest, AddUpToTheIterations) {
  EXPECT_EQ(BurstLengths(20, 4, INT_MAX), (Lengths{5, 5, 5, 5}));
  EXPECT_EQ(BurstLengths(10, 4, INT_MAX), (Lengths{3, 3, 2, 2}));
  EXPECT_EQ(BurstLengths(2, 4, INT_MAX), (Lengths{1, 1}));
  EXPECT_EQ(BurstLengths(7, 1, INT_MAX), (Lengths{7}));
  EXPECT_EQ(BurstLengths(0, 4, INT_MAX), Lengths());
}

TEST(BurstsTest, NeverExceedTheLongest) {
  EXPECT_EQ(BurstLengths(20, 1, 6), (Lengths{5, 5, 5, 5}));
  EXPECT_EQ(BurstLengths(3, 1, 1), (Lengths{1, 1, 1}));
}

TEST(BurstsTest, SumsInPlaceMustStayInRange) {
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat32, onebitAvg, 8), INT_MAX);
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat32, onebitSum, 1), INT_MAX);
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat32, onebitMax, 8), INT_MAX);
  EXPECT_EQ(LongestInPlaceBurst(onebitUint8, onebitSum, 8), INT_MAX);
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat32, onebitSum, 4), 20);
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat16, onebitSum, 4), 6);
  EXPECT_EQ(LongestInPlaceBurst(onebitFloat16, onebitSum, 1024), 1);
}

TEST(BurstsTest, AsManyCallsAsFitButNeverOneOnly) {
  EXPECT_EQ(CallsThatFit(0.5, 0.1, 50), 5);
  EXPECT_EQ(CallsThatFit(0.5, 8.4, 50), kFewestCalls);
  EXPECT_EQ(CallsThatFit(0.5, 1e-6, 50), 50);
  EXPECT_EQ(CallsThatFit(0.5, 0, 50), 50);
  EXPECT_EQ(CallsThatFit(0, 1e-6, 50), kFewestCalls);
  EXPECT_EQ(CallsThatFit(0.5, 8.4, 1), 1);
}

}  // namespace
}  // namespace onebit::perf
