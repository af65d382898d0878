// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of onebitCodecLossless on device memory, over host transports and NCCL: every version
// arrives bit for bit, in few bytes.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"

namespace onebit::testing {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kCount = 2 * 65'536 + 5001;  // three blocks

// The elements that a rank sends in a call. Few differ from those of the call before, but in call
// kOtherFrom, where all do.
constexpr int kOtherFrom = 6;
Bytes InputOf(int rank, int call, size_t width = sizeof(uint16_t)) {
  std::mt19937 random(static_cast<unsigned>(rank + (call < kOtherFrom ? 0 : 100)));
  std::vector<uint16_t> elements(kCount * width / sizeof(uint16_t));
  for (uint16_t& element : elements) element = static_cast<uint16_t>(random());
  for (int k = 0; k < 50 * call; ++k) ++elements[random() % elements.size()];
  Bytes bytes(kCount * width);
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

UniqueCompressor Make(onebitComm_t comm, onebitCollective_t collective,
                      onebitMemory_t memory = onebitMemoryDevice,
                      onebitDataType_t type = onebitBfloat16) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = collective;
  config.codec = onebitCodecLossless;
  config.memory = memory;
  onebitCompressor_t created = nullptr;
  EXPECT_EQ(onebitCompressorCreate(&created, comm, kCount, type, &config), onebitSuccess)
      << onebitGetLastError(nullptr);
  return UniqueCompressor(created);
}

onebitCompressorStats_t StatsOf(onebitCompressor_t compressor) {
  onebitCompressorStats_t stats{};
  stats.size = sizeof(stats);
  EXPECT_EQ(onebitCompressorGetStats(compressor, &stats), onebitSuccess);
  return stats;
}

class DeviceLosslessTest : public ::testing::TestWithParam<Over> {};

// Parts of the tensor begin at odd elements, and most all-gathers are in place.
TEST_P(DeviceLosslessTest, EveryVersionIsBitEqual) {
  for (const auto collective : {onebitCollectiveBroadcast, onebitCollectiveAllGather}) {
    for (const auto type : {onebitBfloat16, onebitFloat32}) {
      const bool is_broadcast = collective == onebitCollectiveBroadcast;
      const size_t width = type == onebitFloat32 ? 4 : 2;
      RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
        const UniqueCompressor compressor = Make(comm, collective, onebitMemoryDevice, type);
        const CudaStream stream;
        const int root = 1;
        uint64_t full_bytes = 0;
        for (const int call : {0, 1, 2, kOtherFrom}) {
          Bytes expected;
          Bytes before;
          for (int part = 0; part < kRanks; ++part) {
            const Bytes sent = InputOf(part, call, width);
            if (is_broadcast && part != root) continue;
            expected.insert(expected.end(), sent.begin(), sent.end());
            const bool is_own = part == rank;
            before.resize(expected.size());
            if (is_own) std::copy(sent.begin(), sent.end(), before.end() - sent.size());
          }
          const CudaBuffer from(InputOf(rank, call, width));
          const CudaBuffer to(before);
          const void* const own = static_cast<std::byte*>(to.data()) + rank * kCount * width;
          const onebitResult_t result =
              is_broadcast ? onebitBroadcastCompressed(from.data(), to.data(), kCount, type, root,
                                                       compressor.get(), comm, stream.handle())
                           : onebitAllGather(call == 1 ? from.data() : own, to.data(), kCount, type,
                                             compressor.get(), comm, stream.handle());
          ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
          EXPECT_TRUE(stream.IsIdle()) << "it blocks";
          EXPECT_EQ(to.Read(), expected) << call;
          const onebitCompressorStats_t stats = StatsOf(compressor.get());
          EXPECT_EQ(stats.full_calls, call == kOtherFrom ? 2u : 1u);
          EXPECT_EQ(stats.epoch, call == kOtherFrom ? 4u : static_cast<unsigned>(call) + 1);
          if (call == 0) full_bytes = stats.wire_bytes;
          if (call != 0 && call != kOtherFrom && rank == root) {
            EXPECT_LT(stats.wire_bytes, full_bytes / 4);
          }
        }
      });
    }
  }
}

TEST_P(DeviceLosslessTest, OneRankCopies) {
  RunDeviceRanks(GetParam(), 1, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = Make(comm, onebitCollectiveAllGather);
    const CudaStream stream;
    const CudaBuffer from(InputOf(0, 1));
    const CudaBuffer to(kCount * sizeof(uint16_t));
    for (const void* const input : {from.data(), to.data()}) {
      ASSERT_EQ(onebitAllGather(input, to.data(), kCount, onebitBfloat16, compressor.get(), comm,
                                stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_EQ(to.Read(), InputOf(0, 1));
    }
  });
}

// Weights in host memory, as WeightSync has them, whatever the transport; also on another
// communicator.
TEST_P(DeviceLosslessTest, HostMemory) {
  std::vector<UniqueCompressor> compressors(kRanks);
  for (int round = 0; round < 2; ++round) {
    RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
      UniqueCompressor& compressor = compressors[static_cast<size_t>(rank)];
      if (round == 0) {
        compressor = Make(comm, onebitCollectiveBroadcast, onebitMemoryHost);
      } else {
        int source = 0;
        ASSERT_EQ(onebitCompressorRebind(compressor.get(), comm, &source), onebitSuccess)
            << onebitGetLastError(nullptr);
        EXPECT_EQ(source, -1);
      }
      for (int call = 3 * round; call < 3 * round + 3; ++call) {
        const Bytes input = InputOf(rank, call);
        Bytes output(input.size());
        ASSERT_EQ(onebitBroadcastCompressed(input.data(), output.data(), kCount, onebitBfloat16, 0,
                                            compressor.get(), comm, nullptr),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
        EXPECT_EQ(output, InputOf(0, call));
      }
      EXPECT_EQ(StatsOf(compressor.get()).full_calls, 1u);
    });
  }
}

TEST_P(DeviceLosslessTest, ACaptureIsRefused) {
  RunDeviceRanks(GetParam(), 1, [&](onebitComm_t comm, int) {
    const UniqueCompressor compressor = Make(comm, onebitCollectiveBroadcast);
    const CudaStream stream;
    const CudaBuffer buffer(kCount * sizeof(uint16_t));
    CudaGraph::Begin(stream);
    EXPECT_EQ(onebitBroadcastCompressed(buffer.data(), buffer.data(), kCount, onebitBfloat16, 0,
                                        compressor.get(), comm, stream.handle()),
              onebitInvalidUsage);
    EXPECT_THAT(std::string(onebitGetLastError(nullptr)), HasSubstr("stream is being captured"));
    const CudaGraph graph(stream);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, DeviceLosslessTest,
                         ::testing::Values(Over::kLocal, Over::kNccl),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace onebit::testing
