// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Dense calls by NCCL itself, where a communicator's first one waits for all ranks before it is
// enqueued.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_checks.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kCount = 10'000;

// Set before the library reads its settings.
[[maybe_unused]] const int settings =
    setenv("ONEBIT_NCCL_NATIVE_DENSE", "1", 1) | setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", "5000", 1);

std::string LastError() { return onebitGetLastError(nullptr); }

TEST(NativeDenseTest, IsWhatTheTransportMakesOfIt) {
  RunDeviceRanks(Over::kNccl, kRanks, [](onebitComm_t comm, int rank) {
    CheckNativeDense({.comm = comm, .rank = rank, .ranks = kRanks});
  });
}

// No rank may be inside NCCL while the thread waits there for another rank.
TEST(NativeDenseTest, LetsOneThreadDriveSeveralDevices) {
  RunDeviceRanksInOneThread(Over::kNccl, kRanks, [&](std::span<const onebitComm_t> comms) {
    std::vector<std::unique_ptr<CudaStream>> streams;
    std::vector<CudaBuffer> buffers;
    for (int r = 0; r < kRanks; ++r) {
      UseCudaDevice(r);
      streams.push_back(std::make_unique<CudaStream>());
      const std::vector<float> values(kCount, static_cast<float>(r + 1));
      buffers.emplace_back(std::as_bytes(std::span(values)));
    }
    onebitTestNcclCounts before;
    onebitTestNcclGetCounts(&before);
    EXPECT_EQ(onebitGroupStart(), onebitSuccess);
    for (size_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(onebitAllReduce(buffers[r].data(), buffers[r].data(), kCount, onebitFloat32,
                                onebitSum, nullptr, comms[r], streams[r]->handle()),
                onebitSuccess)
          << LastError();
    }
    EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    onebitTestNcclCounts after;
    onebitTestNcclGetCounts(&after);
    EXPECT_EQ(after.all_reduces - before.all_reduces, kRanks);
    const std::vector<float> sums(kCount, 6);
    for (size_t r = 0; r < kRanks; ++r) {
      UseCudaDevice(static_cast<int>(r));
      EXPECT_TRUE(IsDoneWithin(*streams[r], std::chrono::seconds(20)));
      const auto expected = std::as_bytes(std::span(sums));
      EXPECT_EQ(buffers[r].Read(), std::vector<std::byte>(expected.begin(), expected.end()));
    }
    streams.clear();
    UseCudaDevice(0);
  });
}

// It is not on the stream, where a deadline could see it.
TEST(NativeDenseTest, CallThatCannotBeEnqueuedHasADeadline) {
  RunDeviceRanks(Over::kNccl, 2, [](onebitComm_t comm, int rank) {
    if (rank == 1) {
      EXPECT_NE(AwaitError(comm).result, onebitSuccess);
      return;
    }
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    EXPECT_NE(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitSum,
                              nullptr, comm, stream.handle()),
              onebitSuccess);
    EXPECT_THAT(LastError(), HasSubstr("ONEBIT_COLLECTIVE_TIMEOUT_MS"));
    EXPECT_TRUE(IsDoneWithin(stream, std::chrono::seconds(20)));
  });
}

}  // namespace
}  // namespace onebit::testing
