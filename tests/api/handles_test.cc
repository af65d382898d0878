// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Handles in the wrong state or in two threads at once.
#include <chrono>
#include <cmath>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "api/handles.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 1000;

onebitResult_t Reduce(onebitComm_t comm, onebitCompressor_t compressor,
                      onebitRedOp_t op = onebitAvg) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 13) - 4;
  return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, op, compressor, comm,
                         nullptr);
}

class HandlesTest : public ::testing::Test {
 protected:
  HandlesTest() {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    for (int rank = 0; rank < 2; ++rank) {
      compressors_.push_back(NewCompressor(group_.comm(rank), kCount, onebitFloat32, config));
    }
  }
  onebitCompressor_t compressor(int rank) const {
    return compressors_[static_cast<size_t>(rank)].get();
  }
  void ExpectAll(onebitResult_t expected, onebitRedOp_t op) {
    for (const Outcome& outcome :
         group_.Call([&](int rank) { return Reduce(group_.comm(rank), compressor(rank), op); })) {
      EXPECT_EQ(outcome.result, expected) << outcome.text;
    }
  }

  CommGroup group_{2};
  std::vector<UniqueCompressor> compressors_;
};

TEST_F(HandlesTest, OpIsFixedByTheFirstCallUntilReset) {
  ExpectAll(onebitSuccess, onebitAvg);
  const Residuals before = ResidualsOf(compressor(0));
  ExpectAll(onebitInvalidUsage, onebitSum);
  EXPECT_EQ(Reduce(group_.comm(0), compressor(0), onebitSum), onebitInvalidUsage);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("onebitCompressorReset"),
            std::string::npos);
  EXPECT_TRUE(ResidualsOf(compressor(0)) == before);
  ExpectAll(onebitSuccess, onebitAvg);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(onebitCompressorReset(compressor(rank)), onebitSuccess);
  }
  ExpectAll(onebitSuccess, onebitSum);
  ExpectAll(onebitInvalidUsage, onebitAvg);
}

TEST_F(HandlesTest, ResetCountsAsALossOnlyIfThereWasSomething) {
  EXPECT_EQ(onebitCompressorReset(compressor(0)), onebitSuccess);
  EXPECT_EQ(StatsOf(compressor(0)).residual_resets, 0u);
  ExpectAll(onebitSuccess, onebitAvg);
  EXPECT_EQ(onebitCompressorReset(compressor(0)), onebitSuccess);
  EXPECT_EQ(onebitCompressorReset(compressor(0)), onebitSuccess);
  EXPECT_EQ(StatsOf(compressor(0)).residual_resets, 1u);
  EXPECT_EQ(WorkerResidualOf(compressor(0)), std::vector<float>(kCount, 0.0f));
}

TEST_F(HandlesTest, RevertDoesNothingUnlessTheLastCallCommitted) {
  ExpectAll(onebitSuccess, onebitAvg);
  EXPECT_EQ(onebitCompressorReset(compressor(0)), onebitSuccess);
  EXPECT_EQ(onebitCompressorReset(compressor(1)), onebitSuccess);
  EXPECT_EQ(onebitCompressorRevert(compressor(0)), onebitSuccess);
  EXPECT_EQ(WorkerResidualOf(compressor(0)), std::vector<float>(kCount, 0.0f));

  ExpectAll(onebitSuccess, onebitAvg);
  const Residuals before = ResidualsOf(compressor(0));
  for (const Outcome& outcome : group_.Call([&](int rank) {
         std::vector<float> values(kCount, NAN);
         return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor(rank), group_.comm(rank), nullptr);
       })) {
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  EXPECT_EQ(onebitCompressorRevert(compressor(0)), onebitSuccess);
  EXPECT_TRUE(ResidualsOf(compressor(0)) == before);
  EXPECT_EQ(StatsOf(compressor(0)).epoch, 2u);
}

TEST_F(HandlesTest, RevertNeedsTwoGenerations) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.transactional = 0;
  const UniqueCompressor single = NewCompressor(group_.comm(0), kCount, onebitFloat32, config);
  EXPECT_EQ(onebitCompressorRevert(single.get()), onebitInvalidUsage);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("not transactional"), std::string::npos);
  EXPECT_EQ(onebitCompressorRevert(nullptr), onebitInvalidArgument);
}

TEST_F(HandlesTest, ResidualNormIsThatOfWhatTheRankOwes) {
  double norm = -1;
  EXPECT_EQ(onebitCompressorGetResidualNorm(compressor(0), &norm), onebitSuccess);
  EXPECT_EQ(norm, 0);
  ExpectAll(onebitSuccess, onebitAvg);
  double squares = 0;
  for (const float owed : WorkerResidualOf(compressor(0))) squares += double{owed} * owed;
  ASSERT_GT(squares, 0);
  const Residuals before = ResidualsOf(compressor(0));
  EXPECT_EQ(onebitCompressorGetResidualNorm(compressor(0), &norm), onebitSuccess);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6 * norm);
  EXPECT_TRUE(ResidualsOf(compressor(0)) == before);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.mode = onebitModePlain;
  const UniqueCompressor plain = NewCompressor(group_.comm(0), kCount, onebitFloat32, config);
  EXPECT_EQ(onebitCompressorGetResidualNorm(plain.get(), &norm), onebitSuccess);
  EXPECT_EQ(norm, 0);
  EXPECT_EQ(onebitCompressorGetResidualNorm(plain.get(), nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitCompressorGetResidualNorm(nullptr, &norm), onebitInvalidArgument);
}

TEST_F(HandlesTest, CompressorIsDetachedWhenItsCommunicatorGoes) {
  ExpectAll(onebitSuccess, onebitAvg);
  const Residuals before = ResidualsOf(compressor(0));
  EXPECT_EQ(group_.Destroy(0), onebitSuccess);
  CommGroup other(2);
  EXPECT_EQ(Reduce(other.comm(0), compressor(0)), onebitDetached);
  EXPECT_TRUE(ResidualsOf(compressor(0)) == before) << "the residuals stay";
  EXPECT_EQ(StatsOf(compressor(0)).epoch, 1u);
}

TEST_F(HandlesTest, CompressorMayBeMadeOnAFailedCommunicator) {
  EXPECT_EQ(onebitCommAbort(group_.comm(0)), onebitSuccess);
  UniqueCompressor late;
  EXPECT_EQ(MakeCompressor(late, group_.comm(0), 10, onebitFloat32), onebitSuccess);
}

// Rank 0 is inside a call, which rank 1 joins at the end of the test.
class SecondThreadTest : public HandlesTest {
 protected:
  SecondThreadTest() {
    call_ =
        std::async(std::launch::async, [this] { return Reduce(group_.comm(0), compressor(0)); });
    const Comm& comm = *group_.comm(0)->comm;
    while (!comm.is_in_call()) std::this_thread::yield();
  }
  ~SecondThreadTest() override {
    EXPECT_EQ(Reduce(group_.comm(1), compressor(1)), onebitSuccess);
    EXPECT_EQ(call_.get(), onebitSuccess) << "the first thread was disturbed";
    EXPECT_EQ(StatsOf(compressor(0)).epoch, 1u);
    ExpectAll(onebitSuccess, onebitAvg);
  }
  static void ExpectRefused(onebitResult_t result, const char* text) {
    EXPECT_EQ(result, onebitInvalidUsage);
    EXPECT_NE(std::string(onebitGetLastError(nullptr)).find(text), std::string::npos)
        << onebitGetLastError(nullptr);
  }

  std::future<onebitResult_t> call_;
};

// Uses other counts: making a plan for them must not touch memory of the running call.
TEST_F(SecondThreadTest, CollectivesAreRefused) {
  const onebitComm_t comm = group_.comm(0);
  std::vector<float> values(100'000);
  for (size_t count = 1; count < values.size(); count = count * 3 / 2 + 1) {
    ExpectRefused(onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum,
                                  nullptr, comm, nullptr),
                  "rank 0: another thread is inside a call on this communicator");
    ExpectRefused(
        onebitBroadcast(values.data(), values.data(), count, onebitFloat32, 0, comm, nullptr),
        "another thread is inside");
  }
  ExpectRefused(onebitBarrier(comm, nullptr), "another thread is inside");
  EXPECT_EQ(StatsOf(comm).failed_calls, 0u) << "refused is not failed";
}

TEST_F(SecondThreadTest, CompressorsOfTheCommunicatorCannotBeMade) {
  onebitCompressor_t handle = nullptr;
  ExpectRefused(onebitCompressorCreate(&handle, group_.comm(0), 10, onebitFloat32, nullptr),
                "another thread is inside");
  EXPECT_EQ(handle, nullptr);
}

TEST_F(SecondThreadTest, CompressorInUseIsRefused) {
  ExpectRefused(Reduce(group_.comm(0), compressor(0)), "is using this compressor");
  ExpectRefused(onebitCompressorReset(compressor(0)), "is using this compressor");
  ExpectRefused(onebitCompressorRevert(compressor(0)), "is using this compressor");
  ExpectRefused(onebitCompressorSetMask(compressor(0), nullptr), "is using this compressor");
  ExpectRefused(onebitCompressorDestroy(compressor(0)), "a call is using this compressor");
}

TEST_F(SecondThreadTest, FactsMayBeAsked) {
  const onebitComm_t comm = group_.comm(0);
  int number = 0;
  onebitResult_t result = onebitInternalError;
  EXPECT_EQ(onebitCommCount(comm, &number), onebitSuccess);
  EXPECT_EQ(number, 2);
  EXPECT_EQ(onebitCommUserRank(comm, &number), onebitSuccess);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(onebitCommGetAsyncError(comm, &result), onebitSuccess);
  EXPECT_EQ(result, onebitSuccess);
  EXPECT_STREQ(onebitGetLastError(comm), "");
  EXPECT_EQ(StatsOf(comm).compressed_calls, 0u);
}

}  // namespace
}  // namespace onebit::testing
