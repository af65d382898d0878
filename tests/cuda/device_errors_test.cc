// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Errors of CUDA and NCCL, and their consequences for calls and memory.
#include <barrier>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/nccl/nccl_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 20'000;

std::string LastError() { return onebitGetLastError(nullptr); }

onebitResult_t CreateCompressor(onebitComm_t comm, onebitCompressor_t* compressor) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  return onebitCompressorCreate(compressor, comm, kCount, onebitFloat32, &config);
}

class DeviceErrorsTest : public ::testing::TestWithParam<Over> {};

TEST_P(DeviceErrorsTest, ADeviceThatBreaksIsAnErrorOnEveryRank) {
  std::barrier all(2);
  RunDeviceRanks(GetParam(), 2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    const auto call = [&] {
      return onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitSum,
                             nullptr, comm, stream.handle());
    };
    EXPECT_EQ(call(), onebitSuccess) << LastError();
    stream.Synchronize();
    all.arrive_and_wait();
    if (rank == 0) onebitTestCudaBreak(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    static_cast<void>(call());  // may report the failure, or not yet
    EXPECT_NE(AwaitError(comm).result, onebitSuccess);
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("rank 0"));
    if (rank == 0) onebitTestCudaBreak(0, CUDA_SUCCESS);
  });
}

TEST(DeviceGroupTest, AnErrorBeforeItIsQueuedIsOneOnEveryRank) {
  std::barrier all(2);
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    const CudaBuffer buffer(2 * kCount * sizeof(float));
    const auto call = [&] {
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      for (const size_t at : {size_t{0}, kCount}) {
        float* const data = static_cast<float*>(buffer.data()) + at;
        EXPECT_EQ(onebitAllReduce(data, data, kCount, onebitFloat32, onebitSum, nullptr, comm,
                                  stream.handle()),
                  onebitSuccess);
      }
      return onebitGroupEnd();
    };
    EXPECT_EQ(call(), onebitSuccess) << LastError();
    stream.Synchronize();
    all.arrive_and_wait();
    if (rank == 0) {
      onebitTestCudaFail("cuEventRecord", 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(call(), onebitUnhandledCudaError);
      onebitTestCudaFail("cuEventRecord", 0, 0, CUDA_SUCCESS);
    }
    EXPECT_NE(AwaitError(comm).result, onebitSuccess) << "rank " << rank;
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("rank 0"));
  });
}

TEST_P(DeviceErrorsTest, AStreamThatIsGoneIsAnErrorOfTheCallAlone) {
  RunDeviceRanks(GetParam(), 2, [&](onebitComm_t comm, int) {
    const CudaBuffer buffer(kCount * sizeof(float));
    const auto call = [&](onebitStream_t stream) {
      return onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitSum,
                             nullptr, comm, stream);
    };
    CUstream gone = nullptr;
    ASSERT_EQ(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamDestroy(gone), CUDA_SUCCESS);
    EXPECT_EQ(call(gone), onebitInvalidArgument) << LastError();
    EXPECT_THAT(LastError(), HasSubstr("does the stream exist"));
    const CudaStream stream;
    EXPECT_EQ(call(stream.handle()), onebitSuccess) << LastError();
    stream.Synchronize();
  });
}

// A failed allocation leaves nothing behind, and the next attempt succeeds.
TEST_P(DeviceErrorsTest, LackOfMemoryIsToldAndNothingIsLost) {
  for (const char* function : {"cuMemAlloc_v2", "cuMemHostAlloc"}) {
    SCOPED_TRACE(function);
    RunDeviceRanks(GetParam(), 1, [&](onebitComm_t comm, int) {
      for (unsigned skip = 0;; ++skip) {
        ASSERT_LT(skip, 50u);
        const size_t device_bytes = onebitTestCudaAllocatedBytes(0);
        onebitCompressor_t compressor = nullptr;
        onebitTestCudaFail(function, skip, 1, CUDA_ERROR_OUT_OF_MEMORY);
        const onebitResult_t result = CreateCompressor(comm, &compressor);
        onebitTestCudaFail(function, 0, 0, CUDA_SUCCESS);
        if (result == onebitSuccess) {
          EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess);
          break;
        }
        EXPECT_EQ(result, onebitOutOfMemory) << LastError();
        EXPECT_EQ(compressor, nullptr);
        // A communicator may keep memory that all of its calls share.
        EXPECT_LE(onebitTestCudaAllocatedBytes(0), device_bytes + 4096);
      }
    });
    EXPECT_EQ(onebitTestCudaAllocatedBytes(0), 0u);
    EXPECT_EQ(onebitTestCudaAllocatedBytes(-1), 0u);
  }
}

TEST_P(DeviceErrorsTest, AllMemoryStreamsAndEventsAreGivenBack) {
  RunDeviceRanks(GetParam(), 3, [](onebitComm_t comm, int) {
    onebitCompressor_t compressor = nullptr;
    ASSERT_EQ(CreateCompressor(comm, &compressor), onebitSuccess) << LastError();
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    for (const onebitCompressor_t with : {compressor, onebitCompressor_t{}}) {
      ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitSum,
                                with, comm, stream.handle()),
                onebitSuccess)
          << LastError();
    }
    stream.Synchronize();
    EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess);
  });
  for (const int device : {0, 1, 2, -1}) EXPECT_EQ(onebitTestCudaAllocatedBytes(device), 0u);
  EXPECT_EQ(onebitTestCudaLiveStreams(), 0u);
  EXPECT_EQ(onebitTestCudaLiveEvents(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceErrorsTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

TEST(NcclErrorsTest, CompressorsThatDoNotFitAreRefused) {
  RunDeviceRanks(Over::kNccl, 2, [](onebitComm_t comm, int rank) {
    onebitCompressor_t compressor = nullptr;
    EXPECT_EQ(onebitCompressorCreate(&compressor, comm, kCount, onebitFloat32, nullptr),
              onebitInvalidUsage);
    EXPECT_THAT(LastError(), HasSubstr("set `memory` to onebitMemoryDevice"));
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    config.device = rank + 2;
    EXPECT_EQ(onebitCompressorCreate(&compressor, comm, kCount, onebitFloat32, &config),
              onebitInvalidUsage);
    EXPECT_EQ(compressor, nullptr);
  });
}

// Right after an error, while the device still waits for a rank that will not come.
TEST_P(DeviceErrorsTest, DestroyEndsWhatTheDeviceWaitsFor) {
  std::barrier joined(2);  // not while the other rank is still joining
  std::latch is_over(1);
  RunDeviceRanks(GetParam(), 2, [&](onebitComm_t comm, int rank) {
    joined.arrive_and_wait();
    if (rank == 1) return is_over.wait();
    const CountDown end(is_over);
    onebitCompressor_t compressor = nullptr;
    ASSERT_EQ(CreateCompressor(comm, &compressor), onebitSuccess) << LastError();
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitSum,
                              compressor, comm, stream.handle()),
              onebitSuccess)
        << LastError();
    EXPECT_EQ(onebitCommAbort(comm), onebitSuccess);
    if (GetParam() == Over::kNccl) {
      EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess) << LastError();
    } else {
      stream.Synchronize();  // then the thread of the calls has released the compressor
      EXPECT_EQ(onebitCompressorDestroy(compressor), onebitSuccess) << LastError();
    }
    stream.Synchronize();
  });
}

TEST(NcclErrorsTest, ComeUpOnEveryRank) {
  std::barrier joined(2);  // not while the other rank is still joining
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    joined.arrive_and_wait();
    if (rank == 0) onebitTestNcclBreak(0, ncclRemoteError, "the cable is out");
    EXPECT_EQ(AwaitError(comm).result, onebitRemoteError);
    EXPECT_THAT(std::string(onebitGetLastError(comm)), HasSubstr("the cable is out"));
  });
}

}  // namespace
}  // namespace onebit::testing
