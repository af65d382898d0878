// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The end of a communicator on one rank, late ranks, and ranks that never come.
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

onebitResult_t Reduce(onebitComm_t comm, size_t count) {
  std::vector<float> values(count, 1.0f);
  return onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum, nullptr,
                         comm, nullptr);
}

// Small messages are copied at once, large ones stay with their sender until they are received.
constexpr size_t kCounts[] = {10, 100'000};

TEST(DestroyTest, ReleasesPeersThatAreBlocked) {
  for (const size_t count : kCounts) {
    CommGroup group(3);
    std::vector<std::future<Outcome>> blocked;
    for (int rank = 0; rank < 2; ++rank) {
      blocked.push_back(std::async(std::launch::async, [&group, rank, count] {
        return CallHere([&] { return Reduce(group.comm(rank), count); });
      }));
    }
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    EXPECT_EQ(group.Destroy(2), onebitSuccess);
    for (std::future<Outcome>& call : blocked) {
      const Outcome outcome = call.get();
      EXPECT_EQ(outcome.result, onebitRemoteError) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "rank 2 has left")) << outcome.text;
    }
  }
}

TEST(DestroyTest, IsRefusedWhileACallIsInside) {
  CommGroup group(2);
  std::future<onebitResult_t> blocked =
      std::async(std::launch::async, [&] { return onebitBarrier(group.comm(0), nullptr); });
  EXPECT_TRUE(AwaitOtherThreadsAsleep());
  EXPECT_EQ(onebitCommDestroy(group.comm(0)), onebitInvalidUsage);
  EXPECT_TRUE(Contains(onebitGetLastError(nullptr), "onebitCommAbort"));
  EXPECT_EQ(onebitBarrier(group.comm(1), nullptr), onebitSuccess);
  EXPECT_EQ(blocked.get(), onebitSuccess);
}

// Ranks do not wait at the end: one may leave while others finish the same call.
TEST(DestroyTest, RightAfterTheLastCallHarmsNobody) {
  for (int round = 0; round < 100; ++round) {
    for (const size_t count : kCounts) {
      CommGroup group(4);
      group.Run([&](int rank) {
        EXPECT_EQ(Reduce(group.comm(rank), count), onebitSuccess) << onebitGetLastError(nullptr);
        EXPECT_EQ(group.Destroy(rank), onebitSuccess);
      });
    }
  }
}

TEST(DestroyTest, OfAnIdleRankIsSeenByTheNextCall) {
  CommGroup group(2);
  EXPECT_EQ(group.Destroy(1), onebitSuccess);
  const Outcome outcome = group.Call([&](int rank) {
    return rank == 0 ? onebitBarrier(group.comm(0), nullptr) : onebitSuccess;
  })[0];
  EXPECT_EQ(outcome.result, onebitRemoteError);
  EXPECT_TRUE(Contains(outcome.text, "rank 0: rank 1 has left")) << outcome.text;
}

TEST(DestroyTest, CompressorsOutliveTheirCommunicator) {
  CommGroup group(2);
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  const UniqueCompressor compressor = NewCompressor(group.comm(0), 100, onebitFloat32, config);
  EXPECT_EQ(group.Destroy(0), onebitSuccess);
  EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
  EXPECT_EQ(onebitCompressorReset(compressor.get()), onebitSuccess);
}

TEST(LateRankTest, IsOnlyLate) {
  for (const size_t count : kCounts) {
    CommGroup group(3);
    std::atomic<bool> has_come = false;
    for (const Outcome& outcome : group.Call([&](int rank) {
           if (rank == 1) {
             EXPECT_TRUE(AwaitOtherThreadsAsleep());
             has_come = true;
           }
           const onebitResult_t result = Reduce(group.comm(rank), count);
           EXPECT_TRUE(has_come) << "rank " << rank << " did not wait";
           return result;
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
  }
}

// Any progress restarts the time-out: three ranks come one after the other, each within the
// deadline, although the last one comes after it.
TEST(LateRankTest, DeadlineCountsSilenceNotDuration) {
  const uint64_t timeout_ms = PacedMs(2000);
  CommGroup group(3, {.timeout_ms = timeout_ms});
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    // Each comes before the silence is as long as the time-out.
    std::this_thread::sleep_for(rank * std::chrono::milliseconds(timeout_ms) * 13 / 20);
    return onebitBarrier(group.comm(rank), nullptr);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
}

TEST(MissingRankTest, IsNamedWhenTheDeadlinePasses) {
  for (const size_t count : kCounts) {
    const uint64_t timeout_ms = ShortTimeoutMs();
    CommGroup group(4, {.timeout_ms = timeout_ms});
    const std::vector<Outcome> outcomes = group.Call(
        [&](int rank) { return rank == 2 ? onebitSuccess : Reduce(group.comm(rank), count); });
    int timeouts = 0;
    for (const size_t rank : {0, 1, 3}) {
      const Outcome& outcome = outcomes[rank];
      EXPECT_TRUE(outcome.result == onebitTimeout || outcome.result == onebitRemoteError);
      timeouts += outcome.result == onebitTimeout ? 1 : 0;
      EXPECT_TRUE(Contains(outcome.text, "waiting for rank 2 (")) << outcome.text;
      EXPECT_TRUE(Contains(outcome.text, "messages missing, ")) << outcome.text;
      EXPECT_GE(NumberAfter(outcome.text, "no progress for ") + kRounding, timeout_ms / 1000.0);
    }
    EXPECT_GE(timeouts, 1);
    const Outcome late = CallHere([&] { return Reduce(group.comm(2), count); });
    EXPECT_EQ(late.result, onebitRemoteError);
    EXPECT_TRUE(Contains(late.text, "no progress for ")) << late.text;
  }
}

// A single thread cannot drive two ranks whose calls block: an error at once, not at the deadline,
// which loses nothing. Runs in a separate process, because this one may have had threads.
TEST(OnlyThreadTest, IsToldThatNobodyMakesTheOtherCalls) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CommGroup group(2);
        const Outcome lonely = CallHere([&] { return onebitBarrier(group.comm(0), nullptr); });
        std::cerr << lonely.result << " " << lonely.text << '\n';
        const std::vector<Outcome> together =
            group.Call([&](int rank) { return onebitBarrier(group.comm(rank), nullptr); });
        exit(together[0].result == onebitSuccess && together[1].result == onebitSuccess ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^5 rank 0 of 2: .*a thread of its own");
}

// Threads of the library do not count, and none has started when this is detected.
TEST(OnlyThreadTest, IsToldSoWhereThreadsWouldHelp) {
  const auto call_alone = [] {
    CommGroup group(2, {.timeout_ms = 20'000, .compute_threads = 2});
    std::vector<float> values(1 << 20);
    const UniqueCompressor compressor =
        NewCompressor(group.comm(0), values.size(), onebitFloat32, ONEBIT_COMPRESSOR_CONFIG_INIT);
    const Outcome lonely = CallHere([&] {
      return onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitSum,
                             compressor.get(), group.comm(0), nullptr);
    });
    std::cerr << lonely.result << " " << lonely.text << '\n';
    exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(call_alone(), ::testing::ExitedWithCode(0), "^5 rank 0 of 2: .*a thread of its own");
}

}  // namespace
}  // namespace onebit::testing
