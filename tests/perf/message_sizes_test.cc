// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sizes and their suffixes, the steps of a sweep, and bandwidth.
#include "perf/common/message_sizes.h"

#include <gtest/gtest.h>

#include "perf/common/bandwidth.h"

namespace onebit::perf {
namespace {

using Sizes = std::vector<size_t>;

TEST(SizesTest, SuffixesAreBinary) {
  EXPECT_EQ(ParseSize("0"), 0u);
  EXPECT_EQ(ParseSize("4096"), 4096u);
  EXPECT_EQ(ParseSize("1K"), 1024u);
  EXPECT_EQ(ParseSize("32M"), size_t{32} << 20);
  EXPECT_EQ(ParseSize("2g"), size_t{2} << 30);
  EXPECT_EQ(ParseSize("1.5k"), 1536u);
}

TEST(SizesTest, AnythingElseIsNoSize) {
  for (const char* text : {"", "K", "-1", "+1", " 1", "1 ", "1X", "1KB", "0x10", "nan", "1e3", ".",
                           "1.2.3", "9223372036854775808", "99999999999G"}) {
    EXPECT_FALSE(ParseSize(text)) << "'" << text << "'";
  }
}

TEST(SizesTest, StepsAddUnlessThereIsAFactor) {
  EXPECT_EQ(SweepSizes({8, 40, 16, 0}), (Sizes{8, 24, 40}));
  EXPECT_EQ(SweepSizes({8, 39, 16, 0}), (Sizes{8, 24}));
  EXPECT_EQ(SweepSizes({8, 40, 16, 1}), (Sizes{8, 24, 40}));
  EXPECT_EQ(SweepSizes({1024, 1 << 20, 16, 4}),
            (Sizes{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20}));
  EXPECT_EQ(SweepSizes({}), (Sizes{32 << 20}));
}

TEST(SizesTest, SweepsEndAtTheRangeOfNumbers) {
  const size_t huge = size_t{1} << 62;
  EXPECT_EQ(SweepSizes({huge, SIZE_MAX, 0, 4}), (Sizes{huge}));
  EXPECT_TRUE(SweepSizes({2, 1, 1, 0}).empty());
}

TEST(SizesTest, WarmupsArePowersOfTwoTimesTheSmallest) {
  EXPECT_EQ(WarmupSizes({3, 30, 1, 5}), (Sizes{3, 6, 12, 24}));
  EXPECT_EQ(WarmupSizes({0, 30, 1, 0}), (Sizes{0}));
}

TEST(BandwidthTest, CountsLogicalBytesInPowersOfTen) {
  const Bandwidth bandwidth = BandwidthOf(2'000'000'000, 0.5, AllReduceFactor(4));
  EXPECT_DOUBLE_EQ(bandwidth.alg_gbps, 4.0);
  EXPECT_DOUBLE_EQ(bandwidth.bus_gbps, 6.0);  // 2 * 3 / 4 of it
  EXPECT_EQ(AllReduceFactor(1), 0.0);
  EXPECT_EQ(BandwidthOf(100, 0, 1).alg_gbps, 0.0);
}

}  // namespace
}  // namespace onebit::perf
