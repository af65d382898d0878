// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators joined from an application's ncclComm_t, which remains the application's.
#include <barrier>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kCount = 10'000;

std::string LastError() { return onebitGetLastError(nullptr); }

// Calls `body(native, rank)` on threads with a device and a rank of one ncclComm_t each.
template <typename Body>
void RunNativeRanks(Body body) {
  UseCudaDevice(0);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      UseCudaDevice(rank);
      ncclComm_t native = nullptr;
      ASSERT_EQ(ncclCommInitRank(&native, kRanks, id, rank), ncclSuccess);
      body(native, rank);
      EXPECT_EQ(ncclCommDestroy(native), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> Filled(float value) {
  const std::vector<float> values(kCount, value);
  std::vector<std::byte> bytes(kCount * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(JoinedCommTest, HasTheRanksOfTheApplicationsAndLeavesItInOrder) {
  std::barrier everybody(kRanks);
  RunNativeRanks([&](ncclComm_t native, int rank) {
    onebitComm_t joined = nullptr;
    ASSERT_EQ(onebitCommInitFrom(&joined, "nccl", &native, sizeof native, nullptr), onebitSuccess)
        << LastError();
    UniqueComm comm(joined);
    int found = -1;
    ASSERT_EQ(onebitCommUserRank(comm.get(), &found), onebitSuccess);
    EXPECT_EQ(found, rank);

    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    onebitCompressor_t made = nullptr;
    ASSERT_EQ(onebitCompressorCreate(&made, comm.get(), kCount, onebitFloat32, &config),
              onebitSuccess)
        << LastError();
    UniqueCompressor compressor(made);
    const CudaStream stream;
    const CudaBuffer buffer(Filled(static_cast<float>(rank)));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                              compressor.get(), comm.get(), stream.handle()),
              onebitSuccess)
        << LastError();
    // The application continues to use its communicator, in stream order.
    ASSERT_EQ(ncclAllReduce(buffer.data(), buffer.data(), kCount, ncclFloat32, ncclSum, native,
                            stream.get()),
              ncclSuccess);
    stream.Synchronize();
    EXPECT_EQ(buffer.Read(), Filled(3));  // the mean, 1, summed over three ranks
    compressor.reset();
    comm.reset();
    // Freeing pinned memory may wait for the devices of all ranks of the process, so no rank may
    // still be waiting for one that frees memory.
    everybody.arrive_and_wait();
    ASSERT_EQ(ncclAllReduce(buffer.data(), buffer.data(), kCount, ncclFloat32, ncclSum, native,
                            stream.get()),
              ncclSuccess);
    stream.Synchronize();
    EXPECT_EQ(buffer.Read(), Filled(9));
  });
}

// Stopping a communicator of NCCL may take seconds. Other communicators, whose heartbeats come from
// the same thread, must not wait for it.
TEST(JoinedCommTest, AFailureIsHeardWhileNcclIsBusyStopping) {
  constexpr std::chrono::seconds kBusyAtLeast{4};
  std::barrier everybody(kRanks);
  std::chrono::steady_clock::time_point begin;
  RunNativeRanks([&](ncclComm_t native, int rank) {
    onebitComm_t joined = nullptr;
    ASSERT_EQ(onebitCommInitFrom(&joined, "nccl", &native, sizeof native, nullptr), onebitSuccess)
        << LastError();
    UniqueComm comm(joined);
    std::jthread aborter;
    everybody.arrive_and_wait();
    if (rank == 0) {
      onebitTestNcclHoldRevoke(1);
      begin = std::chrono::steady_clock::now();
      aborter = std::jthread([&] { EXPECT_EQ(onebitCommAbort(comm.get()), onebitSuccess); });
    }
    everybody.arrive_and_wait();
    onebitResult_t state = onebitSuccess;
    const auto age = [&] { return std::chrono::steady_clock::now() - begin; };
    while (state == onebitSuccess && age() < kBusyAtLeast) {
      EXPECT_EQ(onebitCommGetAsyncError(comm.get(), &state), onebitSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_NE(state, onebitSuccess) << "rank " << rank;
    EXPECT_LT(age(), kBusyAtLeast) << "rank " << rank;
    everybody.arrive_and_wait();
    if (rank == 0) onebitTestNcclHoldRevoke(0);
  });
}

TEST(JoinedCommTest, NeedsTheDeviceOfTheApplications) {
  RunNativeRanks([](ncclComm_t native, int rank) {
    UseCudaDevice(kRanks);
    onebitComm_t joined = nullptr;
    EXPECT_NE(onebitCommInitFrom(&joined, "nccl", &native, sizeof native, nullptr), onebitSuccess);
    EXPECT_THAT(LastError(), HasSubstr("device"));
    EXPECT_EQ(joined, nullptr);
    UseCudaDevice(rank);
  });
}

}  // namespace
}  // namespace onebit::testing
