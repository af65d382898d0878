// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls whose streams share one hardware queue must end as far as memory.h promises it: every rank
// has a device, all make their calls in the same order, and no stream has the highest priority.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 5000;
constexpr int kRanks = 3;

// A stream of the application with its own tensor.
struct CallerStream {
  explicit CallerStream(onebitComm_t of) : comm(of), tensor(kCount * sizeof(float)) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    onebitCompressor_t created = nullptr;
    if (onebitCompressorCreate(&created, comm, kCount, onebitFloat32, &config) != onebitSuccess) {
      throw std::runtime_error(onebitGetLastError(nullptr));
    }
    compressor = UniqueCompressor(created);
  }

  // Writes the tensor on the stream and reduces it there.
  void Call(const CudaBuffer& input, bool is_compressed) {
    CheckCuda(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(tensor.data()),
                                reinterpret_cast<CUdeviceptr>(input.data()), kCount * sizeof(float),
                                stream.get()),
              "cuMemcpyDtoDAsync");
    EXPECT_EQ(onebitAllReduce(tensor.data(), tensor.data(), kCount, onebitFloat32, onebitAvg,
                              is_compressed ? compressor.get() : nullptr, comm, stream.handle()),
              onebitSuccess)
        << onebitGetLastError(nullptr);
  }
  bool IsDoneWithin(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!stream.IsIdle()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  onebitComm_t comm;
  CudaStream stream;
  CudaBuffer tensor;
  UniqueCompressor compressor;
};

std::vector<std::byte> BytesOf(float value) {
  const std::vector<float> values(kCount, value);
  std::vector<std::byte> bytes(kCount * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class QueuesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CUDA_STAND_IN_QUEUES", "1", 1);
    setenv("ONEBIT_COLLECTIVE_TIMEOUT_MS", "20000", 1);  // ends a call that is held up
  }
  // Enqueues several calls on each stream in turn, then waits for all.
  static void CallInTurns(const std::vector<std::unique_ptr<CallerStream>>& streams) {
    const CudaBuffer input(BytesOf(2));
    for (int round = 0; round < 4; ++round) {
      for (size_t i = 0; i < streams.size(); ++i) {
        streams[i]->Call(input, (i + static_cast<size_t>(round)) % 2 == 0);
      }
    }
    for (const auto& stream : streams) {
      ASSERT_TRUE(stream->IsDoneWithin(std::chrono::seconds(30)));
      onebitResult_t error = onebitSuccess;
      EXPECT_EQ(onebitCommGetAsyncError(stream->comm, &error), onebitSuccess);
      EXPECT_EQ(error, onebitSuccess);
    }
    // All signs are equal, so nothing is lost.
    for (const auto& stream : streams) EXPECT_EQ(stream->tensor.Read(), BytesOf(2));
  }
};

TEST_F(QueuesTest, CallsOfManyStreamsEnd) {
  RunDeviceRanks(Over::kLocal, kRanks, [](onebitComm_t comm, int) {
    std::vector<std::unique_ptr<CallerStream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<CallerStream>(comm));
    CallInTurns(streams);
    EXPECT_EQ(onebitBarrier(comm, nullptr), onebitSuccess);  // before anybody frees memory
  });
}

TEST_F(QueuesTest, CallsOfSeveralCommunicatorsEnd) {
  RunDeviceRanks(Over::kLocal, kRanks, [](onebitComm_t comm, int rank) {
    onebitComm_t second = nullptr;
    ASSERT_EQ(onebitCommSplit(comm, 0, rank, &second, nullptr), onebitSuccess);
    std::vector<std::unique_ptr<CallerStream>> streams;
    for (int i = 0; i < 2; ++i) {
      streams.push_back(std::make_unique<CallerStream>(comm));
      streams.push_back(std::make_unique<CallerStream>(second));
    }
    CallInTurns(streams);
    EXPECT_EQ(onebitBarrier(comm, nullptr), onebitSuccess);
    streams.clear();
    EXPECT_EQ(onebitCommDestroy(second), onebitSuccess);
  });
}

// A stream may also wait for another one through an event.
TEST_F(QueuesTest, StreamsThatWaitForEachOtherEnd) {
  RunDeviceRanks(Over::kLocal, kRanks, [](onebitComm_t comm, int) {
    CallerStream first(comm);
    CallerStream second(comm);
    const CudaBuffer input(BytesOf(3));
    CUevent event = nullptr;
    CheckCuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    first.Call(input, true);
    CheckCuda(cuEventRecord(event, first.stream.get()), "cuEventRecord");
    CheckCuda(cuStreamWaitEvent(second.stream.get(), event, 0), "cuStreamWaitEvent");
    second.Call(first.tensor, false);
    EXPECT_TRUE(second.IsDoneWithin(std::chrono::seconds(30)));
    EXPECT_EQ(second.tensor.Read(), BytesOf(3));
    EXPECT_EQ(onebitBarrier(comm, nullptr), onebitSuccess);
    CheckCuda(cuEventDestroy(event), "cuEventDestroy");
  });
}

}  // namespace
}  // namespace onebit::testing
