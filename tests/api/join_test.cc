// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators of ranks that join: they work, end properly, and leave nothing behind.
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/join_ranks.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr size_t kCount = 1000;

onebitResult_t Reduce(onebitComm_t comm) {
  int rank = 0;
  onebitCommUserRank(comm, &rank);
  std::vector<float> values(kCount, static_cast<float>(rank + 1));
  const onebitResult_t result = onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32,
                                                onebitSum, nullptr, comm, nullptr);
  int ranks = 0;
  onebitCommCount(comm, &ranks);
  if (result == onebitSuccess) {
    EXPECT_EQ(values, std::vector<float>(kCount, static_cast<float>(ranks * (ranks + 1) / 2)));
  }
  return result;
}

onebitResult_t Barrier(onebitComm_t comm) { return onebitBarrier(comm, nullptr); }

void ExpectSuccess(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
}

TEST(JoinTest, RanksThatJoinedReduce) {
  for (const int n : {1, 2, 4, 7}) {
    SCOPED_TRACE(n);
    const auto comms = JoinGroup(n);
    for (int rank = 0; rank < n; ++rank) {
      const onebitComm_t comm = comms[static_cast<size_t>(rank)].get();
      int value = -1;
      EXPECT_EQ(onebitCommUserRank(comm, &value), onebitSuccess);
      EXPECT_EQ(value, rank);
      EXPECT_EQ(onebitCommCount(comm, &value), onebitSuccess);
      EXPECT_EQ(value, n);
    }
    ExpectSuccess(CallAll(comms, Reduce));
    ExpectSuccess(CallAll(comms, Reduce));
  }
}

TEST(JoinTest, ARankMayBeLate) {
  const onebitUniqueId id = NewUniqueId();
  std::vector<Joined> early;
  std::thread first([&] { early = JoinRanks(id, {{.rank = 1, .nranks = 2}}); });
  EXPECT_TRUE(AwaitOtherThreadsAsleep());
  const auto late = JoinRanks(id, {{.rank = 0, .nranks = 2}});
  first.join();
  EXPECT_EQ(late[0].outcome.result, onebitSuccess) << late[0].outcome.text;
  EXPECT_EQ(early[0].outcome.result, onebitSuccess) << early[0].outcome.text;
}

TEST(JoinTest, TwoCommunicatorsLiveSideBySide) {
  const auto first = JoinGroup(3);
  const auto second = JoinGroup(2);
  std::thread other([&] { ExpectSuccess(CallAll(second, Reduce)); });
  ExpectSuccess(CallAll(first, Reduce));
  other.join();
  onebitCommAbort(first[0].get());
  ExpectSuccess(CallAll(second, Reduce));
}

TEST(JoinTest, AnIdIsGoodForOneCommunicator) {
  const onebitUniqueId id = NewUniqueId();
  const auto joined = JoinRanks(id, {{.rank = 0, .nranks = 2}, {.rank = 1, .nranks = 2}});
  ASSERT_EQ(joined[0].outcome.result, onebitSuccess) << joined[0].outcome.text;
  onebitConfig_t config = LocalConfig();
  config.connectTimeoutMs = 300;
  const auto again = JoinRanks(id, {{.rank = 0, .nranks = 2, .config = config}});
  EXPECT_EQ(again[0].outcome.result, onebitTimeout);
  EXPECT_THAT(again[0].outcome.text, HasSubstr("Connection refused"));
}

TEST(JoinTest, AfterFinalizeNothingIsLeftToDo) {
  const auto comms = JoinGroup(3);
  ExpectSuccess(CallAll(comms, onebitCommFinalize));
  for (const Outcome& outcome : CallAll(comms, Reduce)) {
    EXPECT_EQ(outcome.result, onebitInvalidUsage);
    EXPECT_THAT(outcome.text, HasSubstr("was finalized: only onebitCommDestroy is left"));
  }
  for (const Outcome& outcome : CallAll(comms, onebitCommFinalize)) {
    EXPECT_EQ(outcome.result, onebitInvalidUsage);
  }
  onebitResult_t state = onebitInternalError;
  EXPECT_EQ(onebitCommGetAsyncError(comms[1].get(), &state), onebitSuccess);
  EXPECT_EQ(state, onebitSuccess);
}

TEST(JoinTest, FinalizeWaitsForAllAndNeedsACommunicator) {
  EXPECT_EQ(onebitCommFinalize(nullptr), onebitInvalidArgument);
  onebitConfig_t config = LocalConfig();
  config.collectiveTimeoutMs = 300;
  const auto comms = JoinGroup(2, config);
  const Outcome outcome = CallHere([&] { return onebitCommFinalize(comms[0].get()); });
  EXPECT_EQ(outcome.result, onebitTimeout);
  EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
}

TEST(JoinTest, AnAbortEndsABlockedCallAndIsNamedByTheOthers) {
  auto comms = JoinGroup(4);
  std::atomic<int> returned{0};
  std::thread aborter([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    EXPECT_EQ(returned, 0);
    EXPECT_EQ(onebitCommAbort(comms[1].get()), onebitSuccess);
  });
  // Rank 3 does not take part, so all others block.
  UniqueComm absent = std::move(comms[3]);
  const auto outcomes = CallAll(comms, [&](onebitComm_t comm) {
    const onebitResult_t result = Reduce(comm);
    ++returned;
    return result;
  });
  aborter.join();
  EXPECT_EQ(outcomes[1].result, onebitAborted) << outcomes[1].text;
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].result, onebitRemoteError);
    EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 1 was aborted"));
  }
  const Outcome late = CallHere([&] { return Barrier(absent.get()); });
  EXPECT_EQ(late.result, onebitRemoteError);
  EXPECT_THAT(late.text, HasSubstr("rank 1 was aborted"));
}

TEST(JoinTest, WhoIsDestroyedInTheMiddleIsNamed) {
  auto comms = JoinGroup(3);
  std::thread leaver([&, leaving = std::move(comms[2])]() mutable {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    leaving.reset();
  });
  const auto outcomes = CallAll(comms, Reduce);
  leaver.join();
  for (const size_t rank : {0, 1}) {
    EXPECT_NE(outcomes[rank].result, onebitSuccess);
    EXPECT_FALSE(HasRunIntoDeadline(outcomes[rank]));
    EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 2"));
  }
}

TEST(JoinTest, TwoHundredCommunicatorsLeaveNothing) {
  const size_t threads = Threads();
  { const auto comms = JoinGroup(2); }
  ASSERT_TRUE(ThreadsSettleAt(threads, milliseconds(2000)));
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 200; ++i) {
    const auto comms = JoinGroup(2);
    if (i % 20 == 0) ExpectSuccess(CallAll(comms, Barrier));
  }
  EXPECT_TRUE(ThreadsSettleAt(threads, milliseconds(2000))) << Threads() << " threads are left";
  EXPECT_TRUE(DescriptorsSettleAt(descriptors, milliseconds(2000)))
      << OpenDescriptors() - descriptors << " descriptors are left";
}

}  // namespace
}  // namespace onebit::testing
