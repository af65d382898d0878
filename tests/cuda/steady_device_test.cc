// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls on streams, alone, in groups and from host memory, do not use the heap once the same calls
// were made before.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/cuda/heap_use.h"
#include "tests/cuda/stream_gate.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 20'000;
constexpr int kWarmUps = 3;
constexpr int kCalls = 10;

std::string LastError() { return onebitGetLastError(nullptr); }

UniqueCompressor NewCompressor(onebitComm_t comm) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  UniqueCompressor compressor;
  EXPECT_EQ(MakeCompressor(compressor, comm, kCount, onebitFloat32, &config), onebitSuccess)
      << LastError();
  return compressor;
}

template <typename Body>
void ExpectNoHeapUse(const char* what, Body body) {
  for (int i = 0; i < kWarmUps; ++i) body();
  uint64_t count = 0;
  std::string first;
  {
    const HeapUse use;
    for (int i = 0; i < kCalls; ++i) body();
    count = use.count();
    first = use.first();
  }
  EXPECT_EQ(count, 0u) << what << ", first at\n" << first;
}

class SteadyDeviceTest : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    if (ONEBIT_HAS_SANITIZER) GTEST_SKIP() << "the sanitizer has an operator new of its own";
  }
};

// Without this the tests below would prove nothing.
TEST_P(SteadyDeviceTest, HeapUseOfTheLibraryIsSeen) {
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int) {
    const HeapUse use;
    const UniqueCompressor compressor = NewCompressor(comm);
    EXPECT_GT(use.count(), 0u);
  });
}

// Calls of `ranks` ranks, of which so many successive ones form a host; 0: all of them.
void ExpectNoHeapUseOfCalls(Over over, int ranks, int host_ranks) {
  const auto run = [host_ranks](onebitComm_t comm, int) {
    const UniqueCompressor compressor = NewCompressor(comm);
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(float));
    for (const onebitCompressor_t with : {compressor.get(), onebitCompressor_t{}}) {
      const auto call = [&] {
        EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kCount, onebitFloat32, onebitAvg,
                                  with, comm, stream.handle()),
                  onebitSuccess)
            << LastError();
      };
      // More calls than are ever in flight later. A stream holds 512 operations, and calls of two
      // levels have more of them, so these are made one by one.
      const int ahead = host_ranks == 0 ? 2 * (kWarmUps + kCalls) : kCalls;
      {
        StreamGate gate(stream);
        for (int i = 0; i < ahead; ++i) call();
        gate.Open();
      }
      stream.Synchronize();
      ExpectNoHeapUse(with == nullptr ? "dense" : "compressed", [&] {
        call();
        if (host_ranks != 0) stream.Synchronize();
      });
    }
    stream.Synchronize();
    onebitCommStats_t stats = {.size = sizeof stats};
    EXPECT_EQ(onebitCommGetStats(comm, &stats), onebitSuccess);
    EXPECT_EQ(stats.two_level_calls != 0, host_ranks != 0);
  };
  RunDeviceRanks(over, ranks, run, host_ranks);
}

TEST_P(SteadyDeviceTest, CallsUseNoHeap) { ExpectNoHeapUseOfCalls(GetParam(), 2, 0); }

TEST_P(SteadyDeviceTest, CallsInTwoLevelsUseNoHeap) { ExpectNoHeapUseOfCalls(GetParam(), 3, 2); }

INSTANTIATE_TEST_SUITE_P(Transports, SteadyDeviceTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

using SteadyNcclTest = SteadyDeviceTest;

TEST_P(SteadyNcclTest, BlockingCallsFromTheHostUseNoHeap) {
  RunDeviceRanks(GetParam(), 2, [](onebitComm_t comm, int) {
    std::vector<float> values(kCount, 1);
    ExpectNoHeapUse("from the host", [&] {
      EXPECT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                nullptr, comm, nullptr),
                onebitSuccess)
          << LastError();
    });
  });
}

TEST_P(SteadyNcclTest, AllToAllvUsesNoHeap) {
  RunDeviceRanks(GetParam(), 2, [](onebitComm_t comm, int) {
    const CudaStream stream;
    const CudaBuffer in(kCount * sizeof(float));
    const CudaBuffer out(kCount * sizeof(float));
    const size_t counts[] = {kCount / 2, kCount / 2};
    const size_t displacements[] = {0, kCount / 2};
    ExpectNoHeapUse("all-to-all-v", [&] {
      EXPECT_EQ(onebitAllToAllv(in.data(), counts, displacements, out.data(), counts, displacements,
                                onebitFloat32, nullptr, comm, stream.handle()),
                onebitSuccess)
          << LastError();
    });
    stream.Synchronize();
  });
}

TEST_P(SteadyNcclTest, GroupsOfOneAndOfSeveralCommunicatorsUseNoHeap) {
  constexpr int kRanks = 2;
  RunDeviceRanksInOneThread(GetParam(), kRanks, [&](std::span<const onebitComm_t> comms) {
    std::vector<std::unique_ptr<CudaStream>> streams;
    std::vector<CudaBuffer> buffers;
    std::vector<UniqueCompressor> compressors;
    for (int r = 0; r < kRanks; ++r) {
      UseCudaDevice(r);
      streams.push_back(std::make_unique<CudaStream>());
      buffers.emplace_back(kCount * sizeof(float));
      compressors.push_back(NewCompressor(comms[static_cast<size_t>(r)]));
    }
    ExpectNoHeapUse("two calls on each of two communicators", [&] {
      EXPECT_EQ(onebitGroupStart(), onebitSuccess);
      for (size_t r = 0; r < kRanks; ++r) {
        for (const onebitCompressor_t with : {compressors[r].get(), onebitCompressor_t{}}) {
          EXPECT_EQ(onebitAllReduce(buffers[r].data(), buffers[r].data(), kCount, onebitFloat32,
                                    onebitSum, with, comms[r], streams[r]->handle()),
                    onebitSuccess)
              << LastError();
        }
      }
      EXPECT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
    });
    for (size_t r = 0; r < kRanks; ++r) {
      UseCudaDevice(static_cast<int>(r));
      streams[r]->Synchronize();
    }
    streams.clear();
    UseCudaDevice(0);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, SteadyNcclTest, ::testing::Values(Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace onebit::testing
