// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Heap memory runs out during calls on a device: the call fails alone and is repeated, or all ranks
// are told. Streams continue in any case.
#include <pthread.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/allocation_failer.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 20'000;
constexpr std::chrono::seconds kTestTimeout{20};
// The name of the threads that move messages.
constexpr const char* kProxyThread = "onebit-proxy";

// The thread whose memory runs out: the calling thread of rank 0, or the first proxy thread that
// allocates.
enum class Starved { kCaller, kProxy };

struct HeapCase {
  Over over;
  Starved starved;
  Shortage shortage;
};

std::string NameOfCase(const ::testing::TestParamInfo<HeapCase>& info) {
  return std::string(NameOf(info.param.over)) +
         (info.param.starved == Starved::kCaller ? "Caller" : "Proxy") +
         (info.param.shortage == Shortage::kOnce ? "Once" : "FromThenOn");
}

class DeviceHeapTest : public ::testing::TestWithParam<HeapCase> {
 protected:
  // One rank that makes a compressed and a dense call together.
  class Caller {
   public:
    explicit Caller(onebitComm_t comm) : comm_(comm), buffer_(2 * kCount * sizeof(float)) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.memory = onebitMemoryDevice;
      EXPECT_EQ(MakeCompressor(compressor_, comm, kCount, onebitFloat32, &config), onebitSuccess)
          << onebitGetLastError(nullptr);
    }
    const CudaStream& stream() const { return stream_; }

    onebitResult_t CallDense() const { return AllReduce(nullptr, 0, 100); }
    onebitResult_t CallBoth() const {
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      static_cast<void>(AllReduce(compressor_.get(), 0, kCount));
      static_cast<void>(AllReduce(nullptr, kCount, kCount));
      return onebitGroupEnd();  // also if a call has failed
    }
    onebitResult_t state() const {
      onebitResult_t state = onebitSuccess;
      EXPECT_EQ(onebitCommGetAsyncError(comm_, &state), onebitSuccess);
      return state;
    }

   private:
    onebitResult_t AllReduce(onebitCompressor_t compressor, size_t at, size_t count) const {
      float* const data = static_cast<float*>(buffer_.data()) + at;
      return onebitAllReduce(data, data, count, onebitFloat32, onebitAvg, compressor, comm_,
                             stream_.handle());
    }

    const onebitComm_t comm_;
    const CudaBuffer buffer_;
    UniqueCompressor compressor_;
    const CudaStream stream_;
  };

  // Returns false if there was no allocation left to fail.
  static bool RunWithout(uint64_t before) {
    std::atomic<bool> has_struck{false};
    std::atomic<int> failed{0};
    std::barrier all(2);
    RunDeviceRanks(GetParam().over, 2, [&](onebitComm_t comm, int rank) {
      const Caller caller(comm);
      EXPECT_EQ(caller.CallDense(), onebitSuccess);
      caller.stream().Synchronize();
      all.arrive_and_wait();  // a failure of rank 0 must not meet the first call of rank 1
      if (rank == 0) {
        has_struck = MakeCalls(caller, before);
      } else {
        static_cast<void>(caller.CallBoth());
      }
      EXPECT_TRUE(IsDoneWithin(caller.stream(), kTestTimeout)) << "rank " << rank;
      all.arrive_and_wait();
      bool has_failed = AwaitError(comm, kLookFor).result != onebitSuccess;
      if (has_failed) ++failed;
      all.arrive_and_wait();
      if (failed == 0 || has_failed) return;
      has_failed = AwaitError(comm, kTestTimeout).result != onebitSuccess;
      EXPECT_TRUE(has_failed) << "rank " << rank << " does not hear of the failure";
    });
    return has_struck;
  }

  static bool MakeCalls(const Caller& caller, uint64_t before) {
    if (GetParam().starved == Starved::kProxy) {
      const FailingAllocationsOf starved(kProxyThread, before, GetParam().shortage);
      // The other rank's proxy, which starves, too, may already have failed the communicator.
      if (caller.CallBoth() != onebitSuccess) {
        EXPECT_NE(caller.state(), onebitSuccess) << onebitGetLastError(nullptr);
      }
      EXPECT_TRUE(IsDoneWithin(caller.stream(), kTestTimeout));
      return starved.has_struck();
    }
    onebitResult_t result = onebitSuccess;
    bool has_struck = false;
    {
      const FailingAllocations starved(before, GetParam().shortage);
      result = caller.CallBoth();
      has_struck = starved.has_struck();
    }
    if (result == onebitSuccess || caller.state() != onebitSuccess) return has_struck;
    EXPECT_EQ(result, onebitOutOfMemory) << onebitGetLastError(nullptr);
    EXPECT_EQ(caller.CallBoth(), onebitSuccess) << onebitGetLastError(nullptr);
    return has_struck;
  }

 private:
  static constexpr std::chrono::milliseconds kLookFor{20};
};

TEST_P(DeviceHeapTest, AShortageIsAnErrorOfTheCallOrOfAllRanks) {
  uint64_t before = 0;
  while (RunWithout(before)) {
    ASSERT_FALSE(HasFailure()) << "after " << before << " allocations";
    ASSERT_LT(++before, 500u);
  }
  EXPECT_GT(before, 0u) << "nothing is allocated: this test sees nothing";
}

// Not over nccl from that allocation on: the stand-in for NCCL needs memory as well, even to abort.
INSTANTIATE_TEST_SUITE_P(
    Cases, DeviceHeapTest,
    ::testing::Values(HeapCase{Over::kLocal, Starved::kCaller, Shortage::kOnce},
                      HeapCase{Over::kLocal, Starved::kProxy, Shortage::kOnce},
                      HeapCase{Over::kLocal, Starved::kProxy, Shortage::kFromThenOn},
                      HeapCase{Over::kNccl, Starved::kCaller, Shortage::kOnce}),
    NameOfCase);

}  // namespace
}  // namespace onebit::testing
