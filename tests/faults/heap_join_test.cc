// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap memory runs out while communicators are created: an error that says so, peers that name the
// rank, and a successful second attempt.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/join_ranks.h"
#include "tests/faults/heap_case.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Used where many allocations cost a time-out each.
constexpr uint64_t kStride = 17;

TEST(HeapInitAllTest, FailsCleanlyAndWorksNext) {
  for (const Shortage shortage : {Shortage::kOnce, Shortage::kFromThenOn}) {
    const auto sweep = [shortage] {
      return ForEachAllocation([shortage](uint64_t before) {
        onebitComm_t comms[3] = {};
        const StarvedCall starved =
            CallWithout(before, shortage, [&] { return onebitCommInitAll(comms, 3, nullptr); });
        if (starved.has_struck) {
          EXPECT_EQ(starved.result, onebitOutOfMemory) << before << ": " << starved.text;
          EXPECT_EQ(comms[0], nullptr);
          EXPECT_EQ(onebitCommInitAll(comms, 3, nullptr), onebitSuccess) << before;
        }
        for (onebitComm_t comm : comms) onebitCommDestroy(comm);
        return starved.has_struck;
      });
    };
    EXPECT_GT(sweep(), 0u);
    const int64_t live = LiveAllocations();
    EXPECT_GT(sweep(), 0u);
    EXPECT_EQ(LiveAllocations(), live);
  }
}

class HeapJoinTest : public ::testing::TestWithParam<HeapParameter> {
 protected:
  HeapJoinTest() {
    config_.transport = GetParam().transport.c_str();
    // The others wait this long for a rank that fails before it can tell them.
    config_.connectTimeoutMs = static_cast<int32_t>(PacedMs(600));
  }

  // Expects that nobody waits for a failed rank.
  static void ExpectNoneWaits(const std::vector<UniqueComm>& comms, uint64_t before) {
    for (const Outcome& outcome :
         CallAll(comms, [](onebitComm_t comm) { return onebitBarrier(comm, nullptr); })) {
      EXPECT_FALSE(HasRunIntoDeadline(outcome)) << before << ": " << outcome.text;
    }
  }
  void ExpectNextWorks() {
    config_.connectTimeoutMs = 20'000;
    JoinGroup(kCaseRanks, config_);  // throws if one of them fails
  }

  onebitConfig_t config_ = LocalConfig();
};

TEST_P(HeapJoinTest, FailsOnAllRanksAndWorksNext) {
  const auto body = [&](uint64_t before) {
    const onebitUniqueId id = NewUniqueId();
    std::vector<onebitComm_t> comms(kCaseRanks);
    const StarvedGroupCall joins = CallAllWithout(before, GetParam().shortage, [&](int rank) {
      return onebitCommInitRankConfig(&comms[static_cast<size_t>(rank)], kCaseRanks, id, rank,
                                      &config_);
    });
    std::vector<UniqueComm> made;
    for (onebitComm_t comm : comms) made.emplace_back(comm);
    if (joins.starved.has_struck) {
      // If the allocation only delayed this rank, another rank may be the first to fail.
      EXPECT_THAT(joins.starved.result,
                  AnyOf(onebitOutOfMemory, onebitSuccess, onebitRemoteError, onebitTimeout))
          << joins.starved.text;
    }
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      const Outcome& outcome = joins.all[static_cast<size_t>(rank)];
      if (rank == kStarvedRank || outcome.result == onebitSuccess) continue;
      EXPECT_THAT(
          outcome.text,
          AnyOf(
              HasSubstr("rank " + std::to_string(kStarvedRank)),
              HasSubstr("ranks " + std::to_string(kStarvedRank)),
              HasSubstr(std::string(" ").append(std::to_string(kStarvedRank)).append(" missing"))))
          << before;
    }
    // Ranks that had joined before the failure learn of it.
    if (joins.starved.result != onebitSuccess) ExpectNoneWaits(made, before);
    return joins.starved.has_struck;
  };
  EXPECT_GT(ForEachAllocation(body, kStride), 0u);
  ExpectNextWorks();
}

// The thread of the control channel, which serves all ranks here, and rank 0's server.
TEST_P(HeapJoinTest, ControlThreadWithoutMemoryEndsTheGroup) {
  const auto body = [&](uint64_t before) {
    std::vector<JoinCall> calls;
    for (int rank = 0; rank < kCaseRanks; ++rank) {
      calls.push_back({.rank = rank, .nranks = kCaseRanks, .config = config_});
    }
    const onebitUniqueId id = NewUniqueId();
    const FailingAllocationsOf failing("onebit-control", before, GetParam().shortage);
    std::vector<UniqueComm> made;
    for (Joined& joined : JoinRanks(id, calls)) {
      made.push_back(std::move(joined.comm));
    }
    ExpectNoneWaits(made, before);
    made.clear();
    return failing.has_struck();
  };
  EXPECT_GT(ForEachAllocation(body, kStride), 0u);
  ExpectNextWorks();
}

INSTANTIATE_TEST_SUITE_P(Shortages, HeapJoinTest, ::testing::ValuesIn(HeapParameters()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
