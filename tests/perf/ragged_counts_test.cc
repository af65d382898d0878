// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Counts of pairs are ragged, the same in every process, and whole rows that fit the buffers.
#include "perf/common/ragged_counts.h"

#include <gtest/gtest.h>

#include <set>

namespace onebit::perf {
namespace {

Case RowOf(uint32_t seed, size_t row_elements) {
  return {.count = 1000, .ranks = 8, .ragged = {seed, row_elements}};
}

TEST(RaggedCountsTest, PairsDifferAndSomeSendNothing) {
  const Case row = RowOf(1, 1);
  std::multiset<size_t> counts;
  for (int from = 0; from < row.ranks; ++from) {
    for (int to = 0; to < row.ranks; ++to) counts.insert(RaggedCount(row, from, to));
  }
  EXPECT_GT(counts.count(0), 0u);
  EXPECT_LT(counts.count(0), counts.size() / 2);
  EXPECT_GT(std::set<size_t>(counts.begin(), counts.end()).size(), counts.size() / 2);
  EXPECT_LE(*counts.rbegin(), row.count);
}

TEST(RaggedCountsTest, AreWholeRows) {
  const Case row = RowOf(1, 70);
  for (int to = 0; to < row.ranks; ++to) {
    const size_t count = RaggedCount(row, 3, to);
    EXPECT_EQ(count % 70, 0u);
    EXPECT_LE(count, row.count);
  }
  EXPECT_EQ(SentRanges(RowOf(1, 1001), 0).total, 0u);  // a row does not fit
}

TEST(RaggedCountsTest, BothSidesOfAPairAgree) {
  const Case row = RowOf(5, 1);
  for (int from = 0; from < row.ranks; ++from) {
    const Ranges sent = SentRanges(row, from);
    for (int to = 0; to < row.ranks; ++to) {
      const Ranges received = ReceivedRanges(row, to);
      EXPECT_EQ(sent.counts[static_cast<size_t>(to)], received.counts[static_cast<size_t>(from)]);
    }
    EXPECT_EQ(sent.begins.back() + sent.counts.back(), sent.total);
  }
}

TEST(RaggedCountsTest, FollowFromTheSeed) {
  EXPECT_EQ(SentRanges(RowOf(1, 1), 2).counts, SentRanges(RowOf(1, 1), 2).counts);
  EXPECT_NE(SentRanges(RowOf(1, 1), 2).counts, SentRanges(RowOf(2, 1), 2).counts);
}

}  // namespace
}  // namespace onebit::perf
