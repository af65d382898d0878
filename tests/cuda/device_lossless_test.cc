// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Calls of onebitCodecLossless on device memory, over host transports and NCCL: every version
// arrives bit for bit, in few bytes.
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
constexpr size_t kCount = 2 * 65'536 + 5000;  // three blocks

// The elements that a rank sends in a call. Few differ from those of the call before.
Bytes InputOf(int rank, int call) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<uint16_t> elements(kCount);
  for (uint16_t& element : elements) element = static_cast<uint16_t>(random());
  for (int k = 0; k < 50 * call; ++k) ++elements[random() % kCount];
  Bytes bytes(kCount * sizeof(uint16_t));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

UniqueCompressor Make(onebitComm_t comm, onebitCollective_t collective,
                      onebitMemory_t memory = onebitMemoryDevice) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.collective = collective;
  config.codec = onebitCodecLossless;
  config.memory = memory;
  onebitCompressor_t created = nullptr;
  EXPECT_EQ(onebitCompressorCreate(&created, comm, kCount, onebitBfloat16, &config), onebitSuccess)
      << onebitGetLastError(nullptr);
  return UniqueCompressor(created);
}

class DeviceLosslessTest : public ::testing::TestWithParam<Over> {};

TEST_P(DeviceLosslessTest, EveryVersionIsBitEqual) {
  for (const auto collective : {onebitCollectiveBroadcast, onebitCollectiveAllGather}) {
    const bool is_broadcast = collective == onebitCollectiveBroadcast;
    RunDeviceRanks(GetParam(), kRanks, [&](onebitComm_t comm, int rank) {
      const UniqueCompressor compressor = Make(comm, collective);
      const CudaStream stream;
      const int root = 1;
      uint64_t full_bytes = 0;
      for (int call = 0; call < 4; ++call) {
        Bytes expected;
        for (int part = 0; part < kRanks; ++part) {
          const Bytes sent = InputOf(part, call);
          if (!is_broadcast || part == root) {
            expected.insert(expected.end(), sent.begin(), sent.end());
          }
        }
        const CudaBuffer from(InputOf(rank, call));
        const CudaBuffer to(expected.size());
        const onebitResult_t result =
            is_broadcast ? onebitBroadcastCompressed(from.data(), to.data(), kCount, onebitBfloat16,
                                                     root, compressor.get(), comm, stream.handle())
                         : onebitAllGather(from.data(), to.data(), kCount, onebitBfloat16,
                                           compressor.get(), comm, stream.handle());
        ASSERT_EQ(result, onebitSuccess) << onebitGetLastError(nullptr);
        EXPECT_TRUE(stream.IsIdle()) << "it blocks";
        EXPECT_EQ(to.Read(), expected) << call;
        onebitCompressorStats_t stats{};
        stats.size = sizeof(stats);
        ASSERT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
        EXPECT_EQ(stats.full_calls, 1u);
        EXPECT_EQ(stats.epoch, static_cast<uint64_t>(call) + 1);
        if (call == 0) full_bytes = stats.wire_bytes;
        if (call != 0 && rank == root) {
          EXPECT_LT(stats.wire_bytes, full_bytes / 4);
        }
      }
    });
  }
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
      onebitCompressorStats_t stats{};
      stats.size = sizeof(stats);
      ASSERT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
      EXPECT_EQ(stats.full_calls, 1u);
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
