// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls over NCCL end at their time-out, or when they are aborted, although a thread of the
// application keeps CUDA's driver from answering until they have ended.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 100'000;

// Set before the library and the stand-in read their settings.
[[maybe_unused]] const int settings =
    setenv("CUDA_STAND_IN_DRIVER_LOCK", "1", 1) | setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", "1500", 1);

UniqueCompressor DeviceCompressor(onebitComm_t comm) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  onebitCompressor_t created = nullptr;
  EXPECT_EQ(onebitCompressorCreate(&created, comm, kCount, onebitFloat32, &config), onebitSuccess);
  return UniqueCompressor(created);
}

// Rank 0 makes one call more than rank 1 and frees memory behind it, which holds the driver.
// `meanwhile` runs beside that.
template <typename Body>
void FreeBehindACallOfOneRank(const char* expected, const Body& meanwhile) {
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    const UniqueCompressor compressor = DeviceCompressor(comm);
    const CudaStream stream;
    const CudaBuffer values(kCount * sizeof(float));
    const auto call = [&] {
      EXPECT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
    };
    call();
    stream.Synchronize();
    if (rank == 0) {
      CUdeviceptr spare = 0;
      CheckCuda(cuMemAlloc(&spare, 64), "cuMemAlloc");
      call();
      std::thread beside([&] { meanwhile(comm); });
      CheckCuda(cuMemFree(spare), "cuMemFree");  // returns once the call has ended
      beside.join();
    }
    EXPECT_NE(AwaitError(comm).result, onebitSuccess);
    EXPECT_THAT(onebitGetLastError(comm), HasSubstr(expected));
  });
}

TEST(DriverLockTest, CallOverNcclEndsAtItsTimeOut) {
  FreeBehindACallOfOneRank("ONEBIT_COLLECTIVE_TIMEOUT_MS", [](onebitComm_t) {});
}

TEST(DriverLockTest, AbortEndsACallOverNccl) {
  FreeBehindACallOfOneRank("onebitCommAbort", [](onebitComm_t comm) {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());  // until the driver is held
    EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
  });
}

}  // namespace
}  // namespace onebit::testing
