// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// When calls on a device allocate and free memory: never while a stream waits for a call.
#include <barrier>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kManyElements = 1 << 20;

std::string LastError() { return onebitGetLastError(nullptr); }

UniqueCompressor CompressorOnDevice(onebitComm_t comm, size_t count) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.memory = onebitMemoryDevice;
  UniqueCompressor compressor;
  EXPECT_EQ(MakeCompressor(compressor, comm, count, onebitFloat32, &config), onebitSuccess)
      << LastError();
  return compressor;
}

uint64_t FreesSoFar() {
  onebitTestCudaCounts counts{};
  onebitTestCudaGetCounts(&counts);
  return counts.frees;
}

class DeviceMemoryTest : public ::testing::TestWithParam<Over> {};

// Used by the device, or by a graph that is replayed later.
TEST_P(DeviceMemoryTest, AMaskThatIsTakenAwayMayBeInUseYet) {
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int) {
    const UniqueCompressor compressor = CompressorOnDevice(comm, 100);
    const std::vector<uint8_t> mask(13, 0x5a);
    const uint64_t frees = FreesSoFar();
    for (const uint8_t* next : {mask.data(), static_cast<const uint8_t*>(nullptr), mask.data()}) {
      EXPECT_EQ(onebitCompressorSetMask(compressor.get(), next), onebitSuccess) << LastError();
    }
    EXPECT_EQ(FreesSoFar(), frees);
  });
}

// 0/1 Adam does this at every refresh of its variance.
TEST_P(DeviceMemoryTest, AMaskThatIsSetAgainTakesNoMemory) {
  constexpr size_t kMaskBytes = kManyElements / 8;
  RunDeviceRanks(GetParam(), 1, [](onebitComm_t comm, int) {
    const UniqueCompressor compressor = CompressorOnDevice(comm, kManyElements);
    std::vector<uint8_t> mask(kMaskBytes, 0x5a);
    const auto set = [&] {
      EXPECT_EQ(onebitCompressorSetMask(compressor.get(), mask.data()), onebitSuccess)
          << LastError();
      return onebitTestCudaAllocatedBytes(0);
    };
    const size_t bytes = set();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(set(), bytes);
    mask[5] ^= 1;
    EXPECT_EQ(set(), bytes + kMaskBytes);
  });
}

// A communicator's first call creates what all calls share; packets already exist then.
TEST_P(DeviceMemoryTest, ARebindTakesWhatTheNextCallNeeds) {
  constexpr size_t kSharedBytes = 16'384;
  std::barrier all(2);
  RunDeviceRanks(GetParam(), 2, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = CompressorOnDevice(comm, kManyElements);
    all.arrive_and_wait();  // an abort would reach a rank that still creates its own
    onebitComm_t made = nullptr;
    ASSERT_EQ(onebitCommShrink(comm, nullptr, 0, &made, nullptr, ONEBIT_SHRINK_ABORT),
              onebitSuccess)
        << LastError();
    const UniqueComm next(made);
    int source = -1;
    ASSERT_EQ(onebitCompressorRebind(compressor.get(), next.get(), &source), onebitSuccess)
        << LastError();
    const CudaStream stream;
    const CudaBuffer buffer(kManyElements * sizeof(float));
    all.arrive_and_wait();
    const size_t pinned = onebitTestCudaAllocatedBytes(-1);
    all.arrive_and_wait();
    ASSERT_EQ(onebitAllReduce(buffer.data(), buffer.data(), kManyElements, onebitFloat32, onebitAvg,
                              compressor.get(), next.get(), stream.handle()),
              onebitSuccess)
        << LastError();
    stream.Synchronize();
    all.arrive_and_wait();
    EXPECT_LE(onebitTestCudaAllocatedBytes(-1), pinned + kSharedBytes);
    all.arrive_and_wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceMemoryTest, ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return NameOf(info.param); });

// Over a host transport, as memory.h says.
TEST(PinnedMemoryTest, OfDenseCallsHasALimit) {
  constexpr size_t kMiB = 1 << 20;
  constexpr size_t kSharedBytes = 64 << 10;
  constexpr size_t kCallsInGroup = 8;
  std::barrier all(2);
  RunDeviceRanks(Over::kLocal, 2, [&](onebitComm_t comm, int rank) {
    const CudaStream stream;
    CudaBuffer from(40 * kMiB);
    const CudaBuffer to(40 * kMiB);
    std::vector<float> values(10 * kMiB);
    std::mt19937 random(static_cast<unsigned>(rank));
    for (float& value : values) value = static_cast<float>(random() % 4096);
    from.Write(std::as_bytes(std::span(values)));
    const auto expect_a_limit = [&](const char* what) {
      stream.Synchronize();
      all.arrive_and_wait();
      EXPECT_LE(onebitTestCudaAllocatedBytes(-1), 2 * (16 * kMiB + kSharedBytes)) << what;
      all.arrive_and_wait();
    };
    // The calls alone, then in a group; with the sizes of a part and of a call's buffers.
    const auto expect_equal = [&](size_t count, size_t elements, auto make) {
      std::vector<std::byte> alone;
      for (const bool is_group : {false, true}) {
        if (is_group) {
          ASSERT_EQ(onebitGroupStart(), onebitSuccess);
        }
        for (size_t call = 0; call < kCallsInGroup; ++call) {
          const size_t offset = call * elements * sizeof(float);
          ASSERT_EQ(make(static_cast<const std::byte*>(from.data()) + offset,
                         static_cast<std::byte*>(to.data()) + offset, count),
                    onebitSuccess)
              << LastError();
        }
        if (is_group) {
          ASSERT_EQ(onebitGroupEnd(), onebitSuccess) << LastError();
        }
        expect_a_limit(is_group ? "a group" : "single calls");
        if (is_group) {
          EXPECT_TRUE(to.Read() == alone);
        } else {
          alone = to.Read();
        }
      }
    };
    // 32 MiB of which at most 16 would travel together, between ranks on hosts.
    expect_equal(kMiB, kMiB, [&](const void* in, void* out, size_t count) {
      return onebitAllReduce(in, out, count, onebitFloat32, onebitSum, nullptr, comm,
                             stream.handle());
    });
    expect_equal(kMiB / 2, kMiB, [&](const void* in, void* out, size_t count) {
      return onebitAllToAll(in, out, count, onebitFloat32, nullptr, comm, stream.handle());
    });
    // Each takes more than a slot.
    expect_equal(5 * kMiB / 8, 5 * kMiB / 4, [&](const void* in, void* out, size_t count) {
      return onebitAllToAll(in, out, count, onebitFloat32, nullptr, comm, stream.handle());
    });
  });
}

// A host stream makes the call later, over nccl as well.
TEST(HostStreamTest, ListsOfAnAllToAllvAreTheCallersAgain) {
  RunDeviceRanks(Over::kNccl, 2, [&](onebitComm_t comm, int rank) {
    onebitStream_t stream = nullptr;
    ASSERT_EQ(onebitStreamCreate(&stream), onebitSuccess) << LastError();
    const std::vector<float> in(4, static_cast<float>(rank + 1));
    std::vector<float> out(4, 0);
    size_t counts[] = {2, 2};
    size_t displacements[] = {0, 2};
    ASSERT_EQ(onebitAllToAllv(in.data(), counts, displacements, out.data(), counts, displacements,
                              onebitFloat32, nullptr, comm, stream),
              onebitSuccess)
        << LastError();
    for (size_t i = 0; i < 2; ++i) counts[i] = displacements[i] = 1'000'000;
    EXPECT_EQ(onebitStreamSynchronize(stream), onebitSuccess) << LastError();
    EXPECT_EQ(out, (std::vector<float>{1, 1, 2, 2}));
    EXPECT_EQ(onebitStreamDestroy(stream), onebitSuccess);
  });
}

TEST(DeviceGroupTest, HasOneWayToTheWire) {
  RunDeviceRanks(Over::kLocal, 1, [](onebitComm_t local, int) {
    RunDeviceRanks(Over::kNccl, 1, [&](onebitComm_t nccl, int) {
      const CudaStream stream;
      const CudaBuffer buffer(2 * sizeof(float));
      const auto call = [&](onebitComm_t comm, size_t at) {
        float* const data = static_cast<float*>(buffer.data()) + at;
        return onebitAllReduce(data, data, 1, onebitFloat32, onebitSum, nullptr, comm,
                               stream.handle());
      };
      for (const auto& [first, second] : {std::pair{local, nccl}, std::pair{nccl, local}}) {
        ASSERT_EQ(onebitGroupStart(), onebitSuccess);
        EXPECT_EQ(call(first, 0), onebitSuccess);
        EXPECT_EQ(call(second, 1), onebitInvalidUsage);
        EXPECT_THAT(LastError(), HasSubstr("use transport nccl and another one"));
        EXPECT_EQ(onebitGroupEnd(), onebitInvalidUsage);
        for (const onebitComm_t comm : {local, nccl}) {
          EXPECT_EQ(call(comm, 0), onebitSuccess) << "usable: " << LastError();
        }
      }
      stream.Synchronize();
    });
  });
}

}  // namespace
}  // namespace onebit::testing
