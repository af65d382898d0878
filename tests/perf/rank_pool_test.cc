// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rank threads persist, run concurrently, and are released by a failure.
#include "perf/common/rank_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

TEST(RankPoolTest, EveryRankKeepsItsThread) {
  RankPool pool(0, 4, [] {});
  std::vector<std::thread::id> first(4), second(4);
  pool.Run([&](int rank) { first[static_cast<size_t>(rank)] = std::this_thread::get_id(); });
  pool.Run([&](int rank) { second[static_cast<size_t>(rank)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_NE(first[0], first[1]);
}

TEST(RankPoolTest, RanksMayBeginAnywhere) {
  RankPool pool(5, 2, [] {});
  std::atomic<int> sum = 0;
  pool.Run([&](int rank) { sum += rank; });
  EXPECT_EQ(sum, 5 + 6);
}

TEST(RankPoolTest, RanksRunAtTheSameTime) {
  RankPool pool(0, 3, [] {});
  std::latch all_here(3);
  pool.Run([&](int) { all_here.arrive_and_wait(); });
}

TEST(RankPoolTest, FirstFailureReleasesTheOthersAndIsReported) {
  std::latch released(1);
  RankPool pool(0, 3, [&] { released.count_down(); });
  std::string message;
  try {
    pool.Run([&](int rank) {
      if (rank == 1) throw std::runtime_error("broken packet");
      released.wait();
      throw std::runtime_error("aborted");
    });
  } catch (const ToolError& error) {
    message = error.what();
  }
  EXPECT_EQ(message, "rank 1: broken packet");
}

}  // namespace
}  // namespace onebit::perf
