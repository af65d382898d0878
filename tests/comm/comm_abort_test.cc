// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Abort from any thread, at any time, any number of times; blocked calls return within a second.
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 30'000;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

onebitResult_t Reduce(onebitComm_t comm, onebitCompressor_t compressor) {
  std::vector<float> values(kCount, 1.0f);
  return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitSum, compressor,
                         comm, nullptr);
}

UniqueCompressor DefaultCompressor(onebitComm_t comm) {
  const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  return NewCompressor(comm, kCount, onebitFloat32, config);
}

// Ranks 0 and 1 are in a collective that rank 2 does not join.
class AbortTest : public ::testing::TestWithParam<bool> {
 protected:
  AbortTest() {
    for (int rank = 0; rank < 3; ++rank) {
      compressors_.push_back(GetParam() ? DefaultCompressor(group_.comm(rank)) : nullptr);
    }
    for (int rank = 0; rank < 2; ++rank) {
      blocked_.push_back(std::async(std::launch::async,
                                    [this, rank] { return CallHere([&] { return Call(rank); }); }));
    }
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
  }

  onebitResult_t Call(int rank) {
    return Reduce(group_.comm(rank), compressors_[static_cast<size_t>(rank)].get());
  }
  // Returns the result of the blocked rank's call, which must come soon.
  Outcome Returned(int rank) {
    std::future<Outcome>& call = blocked_[static_cast<size_t>(rank)];
    EXPECT_EQ(call.wait_for(kTestTimeout), std::future_status::ready)
        << "rank " << rank << " is blocked";
    return call.get();
  }

  CommGroup group_{3};
  std::vector<UniqueCompressor> compressors_;
  std::vector<std::future<Outcome>> blocked_;
};

TEST_P(AbortTest, ReleasesTheBlockedCallOfItsRankAndThoseOfOthers) {
  EXPECT_EQ(onebitCommAbort(group_.comm(0)), onebitSuccess);
  const Outcome aborted = Returned(0);
  EXPECT_EQ(aborted.result, onebitAborted);
  EXPECT_EQ(aborted.text, "rank 0: onebitCommAbort was called on this rank");
  const Outcome other = Returned(1);
  EXPECT_EQ(other.result, onebitRemoteError);
  EXPECT_TRUE(Contains(other.text, "rank 1: rank 0 was aborted: ")) << other.text;
}

TEST_P(AbortTest, OfARankOutsideACallReleasesTheOthers) {
  EXPECT_EQ(onebitCommAbort(group_.comm(2)), onebitSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = Returned(rank);
    EXPECT_EQ(outcome.result, onebitRemoteError);
    EXPECT_TRUE(Contains(outcome.text, "rank 2 was aborted")) << outcome.text;
  }
}

// When Abort returns, the buffers of the interrupted call are the caller's again.
TEST_P(AbortTest, ReturnsWhenNoCallIsInsideAnyMore) {
  EXPECT_EQ(onebitCommAbort(group_.comm(0)), onebitSuccess);
  EXPECT_EQ(group_.Destroy(0), onebitSuccess) << "a call was still inside";
  EXPECT_EQ(Returned(0).result, onebitAborted);
  static_cast<void>(Returned(1));
}

TEST_P(AbortTest, LeavesEveryCallAfterItRefused) {
  EXPECT_EQ(onebitCommAbort(group_.comm(1)), onebitSuccess);
  static_cast<void>(Returned(0));
  static_cast<void>(Returned(1));
  const onebitResult_t expected[] = {onebitRemoteError, onebitAborted, onebitRemoteError};
  for (int rank = 0; rank < 3; ++rank) {
    // Even before a call of this rank, or GetAsyncError, has noticed.
    const char* const text = rank == 1 ? "rank 1: onebitCommAbort" : "rank 1 was aborted";
    EXPECT_TRUE(Contains(onebitGetLastError(group_.comm(rank)), text));
    onebitResult_t result = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(group_.comm(rank), &result), onebitSuccess);
    EXPECT_EQ(result, expected[rank]);
    const Outcome refused = CallHere([&] { return Call(rank); });
    EXPECT_EQ(refused.result, expected[rank]);
    EXPECT_TRUE(Contains(refused.text, text)) << refused.text;
    EXPECT_TRUE(Contains(refused.text, "destroy it")) << refused.text;
    const std::string cause = onebitGetLastError(group_.comm(rank));
    EXPECT_TRUE(refused.text.starts_with(cause)) << cause;
  }
}

TEST_P(AbortTest, IsIdempotentAndTheFirstCauseStays) {
  for (int i = 0; i < 3; ++i) {
    for (int rank = 2; rank >= 0; --rank) {
      EXPECT_EQ(onebitCommAbort(group_.comm(rank)), onebitSuccess);
    }
  }
  EXPECT_TRUE(Contains(Returned(0).text, "rank 2 was aborted"));
  EXPECT_TRUE(Contains(Returned(1).text, "rank 2 was aborted"));
  EXPECT_EQ(std::string(onebitGetLastError(group_.comm(2))),
            "rank 2: onebitCommAbort was called on this rank");
}

TEST_P(AbortTest, MayComeFromManyThreadsAtOnce) {
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([this, i] { onebitCommAbort(group_.comm(i % 3)); });
    }
  }
  EXPECT_NE(Returned(0).result, onebitSuccess);
  EXPECT_NE(Returned(1).result, onebitSuccess);
}

TEST_P(AbortTest, KeepsWhatCompressorsHold) {
  onebitCommAbort(group_.comm(0));
  static_cast<void>(Returned(0));
  static_cast<void>(Returned(1));
  for (int rank = 0; rank < 3; ++rank) group_.Destroy(rank);
  for (const UniqueCompressor& compressor : compressors_) {
    if (compressor == nullptr) continue;
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, AbortTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Ef" : "Dense"; });

TEST(AbortIdleTest, OfAnIdleGroupIsLearntByAllRanks) {
  CommGroup group(3);
  EXPECT_EQ(onebitCommAbort(group.comm(1)), onebitSuccess);
  const onebitResult_t expected[] = {onebitRemoteError, onebitAborted, onebitRemoteError};
  for (int rank = 0; rank < 3; ++rank) {
    onebitResult_t result = onebitSuccess;
    EXPECT_EQ(onebitCommGetAsyncError(group.comm(rank), &result), onebitSuccess);
    EXPECT_EQ(result, expected[rank]);
  }
}

// Abort races with calls that begin, run and end.
TEST(AbortRaceTest, NeverHangsAndNeverLosesTheCause) {
  for (int round = 0; round < 50; ++round) {
    CommGroup group(3);
    std::vector<std::future<onebitResult_t>> calls;
    for (int rank = 0; rank < 3; ++rank) {
      calls.push_back(std::async(std::launch::async, [&group, rank] {
        const UniqueCompressor compressor = DefaultCompressor(group.comm(rank));
        onebitResult_t result = onebitSuccess;
        while (result == onebitSuccess) result = Reduce(group.comm(rank), compressor.get());
        return result;
      }));
    }
    // The abort comes at any time.
    std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 20)));
    onebitCommAbort(group.comm(round % 3));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(calls[static_cast<size_t>(rank)].get(),
                rank == round % 3 ? onebitAborted : onebitRemoteError);
    }
  }
}

}  // namespace
}  // namespace onebit::testing
