// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The number of kernel launches of a call. Small tensors take less time to compute than to launch.
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/cuda/cuda_stand_in.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

// Set before the stand-in reads it: over NCCL each rank needs a device.
[[maybe_unused]] const int settings = setenv("CUDA_STAND_IN_DEVICES", "64", 1);

uint64_t Launches() {
  onebitTestCudaCounts counts;
  onebitTestCudaGetCounts(&counts);
  return counts.launches;
}

constexpr int kMeasured = 2;
constexpr int kManyCalls = 1000;
// Sanitizers need not wait for the longest tensor.
constexpr size_t kManyElements = size_t{1} << (ONEBIT_HAS_SANITIZER ? 21 : 23);

// Returns the launches per rank of each time that `enqueue` runs between ranks. The first time does
// not count.
template <typename Enqueue>
uint64_t LaunchesOfEach(int ranks, int rank, std::barrier<>& everybody, const CudaStream& stream,
                        const Enqueue& enqueue) {
  uint64_t before = 0;
  for (int time = 0; time <= kMeasured; ++time) {
    enqueue();
    if (time != 0) continue;
    stream.Synchronize();
    everybody.arrive_and_wait();
    before = Launches();
    everybody.arrive_and_wait();
  }
  stream.Synchronize();
  everybody.arrive_and_wait();
  const uint64_t launches = Launches() - before;
  everybody.arrive_and_wait();
  const auto times = static_cast<uint64_t>(ranks) * kMeasured;
  EXPECT_EQ(launches % times, 0u) << "rank " << rank;
  return launches / times;
}

// Returns the launches of a group of allreduces with this many elements per rank, one for each
// config; or of the call alone if there is one.
uint64_t LaunchesOf(Over over, int ranks, size_t elements_per_rank,
                    const std::vector<onebitCompressorConfig_t>& configs, int host_ranks = 0) {
  const size_t count = static_cast<size_t>(ranks) * elements_per_rank;
  std::barrier<> everybody(ranks);
  std::atomic<uint64_t> launches = 0;
  const auto run = [&](onebitComm_t comm, int rank) {
    std::vector<UniqueCompressor> compressors;
    const std::vector<float> values(configs.size() * count, static_cast<float>(rank) - 1);
    const CudaBuffer buffer(std::as_bytes(std::span(values)));
    for (onebitCompressorConfig_t config : configs) {
      config.memory = onebitMemoryDevice;
      onebitCompressor_t created = nullptr;
      EXPECT_EQ(onebitCompressorCreate(&created, comm, count, onebitFloat32, &config),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      compressors.emplace_back(created);
    }
    const CudaStream stream;
    const uint64_t counted = LaunchesOfEach(ranks, rank, everybody, stream, [&] {
      const bool is_group = configs.size() > 1;
      EXPECT_EQ(is_group ? onebitGroupStart() : onebitSuccess, onebitSuccess);
      for (size_t i = 0; i < configs.size(); ++i) {
        float* const tensor = static_cast<float*>(buffer.data()) + i * count;
        EXPECT_EQ(onebitAllReduce(tensor, tensor, count, onebitFloat32, onebitAvg,
                                  compressors[i].get(), comm, stream.handle()),
                  onebitSuccess)
            << onebitGetLastError(nullptr);
      }
      EXPECT_EQ(is_group ? onebitGroupEnd() : onebitSuccess, onebitSuccess)
          << onebitGetLastError(nullptr);
    });
    if (rank == 0) launches = counted;
  };
  RunDeviceRanks(over, ranks, run, host_ranks);
  std::cout << ranks << " ranks over " << NameOf(over) << ", " << configs.size() << " calls of "
            << elements_per_rank << " elements each: " << launches << " launches\n";
  return launches;
}

constexpr onebitCompressorConfig_t kConfig = ONEBIT_COMPRESSOR_CONFIG_INIT;

uint64_t LaunchesOf(Over over, int ranks, size_t elements_per_rank) {
  return LaunchesOf(over, ranks, elements_per_rank, {kConfig});
}

class LaunchesTest : public ::testing::TestWithParam<std::tuple<Over, int>> {};

TEST_P(LaunchesTest, AreAtMostTenPerCallForAnyNumberOfRanks) {
  const auto [over, ranks] = GetParam();
  EXPECT_LE(LaunchesOf(over, ranks, 4096), 10u);
}

TEST_P(LaunchesTest, AreAtMostTenPerCallWithLowBitCodes) {
  const auto [over, ranks] = GetParam();
  onebitCompressorConfig_t config = kConfig;
  config.codec = onebitCodecFp4;
  EXPECT_LE(LaunchesOf(over, ranks, 4096, {config}), 10u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaunchesTest,
                         ::testing::Combine(::testing::Values(Over::kLocal, Over::kNccl),
                                            ::testing::Values(2, 8, 32, 64)),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

// A launch adds up what the ranks of a host have for one chunk. Two more exchanges than with one
// level take, over NCCL, four launches for their headers, and one to decode what comes last.
TEST(TwoLevelLaunchesTest, AreFifteenAndOneForEachHost) {
  for (const Over over : {Over::kLocal, Over::kNccl}) {
    for (const auto& [ranks, host_ranks] : {std::pair(4, 2), {8, 4}, {16, 2}}) {
      for (const onebitCodec_t codec : {onebitCodecSign, onebitCodecFp4}) {
        onebitCompressorConfig_t config = kConfig;
        config.codec = codec;
        config.levels = 2;
        const auto hosts = static_cast<uint64_t>(ranks / host_ranks);
        EXPECT_LE(LaunchesOf(over, ranks, 4096, {config}, host_ranks), 15 + hosts)
            << NameOf(over) << ", " << ranks << " ranks, " << host_ranks << " on each host";
      }
    }
  }
}

// A tensor travels in many segments.
TEST(LongTensorTest, TakesAtMostTenLaunches) {
  for (const Over over : {Over::kLocal, Over::kNccl}) {
    EXPECT_LE(LaunchesOf(over, 2, kManyElements), 10u) << NameOf(over);
    EXPECT_LE(LaunchesOf(over, 8, kManyElements / 8 - 4096), 10u) << NameOf(over);
  }
}

// The calls of a group share launches, and 256 pieces fit into one. Each call here has a piece for
// every rank where it compresses and where it decodes, and one where it reduces. Over NCCL kernels
// also write and check the headers of messages, of whole calls in each launch. The last chunk is
// shorter than the others, so that its message is of another length.
class GroupTest : public ::testing::TestWithParam<std::tuple<Over, int, int>> {
 protected:
  static uint64_t Pieces(int ranks, int calls) {
    return static_cast<uint64_t>(calls) * (2 * static_cast<uint64_t>(ranks) + 1);
  }
  // Few in long groups, so that they take little time, but too many for one exchange.
  static size_t ElementsPerRank(int calls) { return calls > 100 ? 300 : 500; }
  // Residuals without a second generation take less memory, and the end of a call may fill them.
  static std::vector<onebitCompressorConfig_t> Configs(int calls, onebitCompressorConfig_t config) {
    if (calls > 300) config.transactional = 0;
    return std::vector(static_cast<size_t>(calls), config);
  }
};

TEST_P(GroupTest, TakesTenLaunchesAndOneForEach256Pieces) {
  const auto [over, ranks, calls] = GetParam();
  EXPECT_LE(LaunchesOf(over, ranks, ElementsPerRank(calls), Configs(calls, kConfig)),
            10 + Pieces(ranks, calls) / 256);
}

// Of low-bit pieces, 224 fit into a launch.
TEST_P(GroupTest, WithLowBitCodesTakesTenLaunchesAndOneForEach224Pieces) {
  const auto [over, ranks, calls] = GetParam();
  onebitCompressorConfig_t config = kConfig;
  config.codec = onebitCodecInt8;
  EXPECT_LE(LaunchesOf(over, ranks, ElementsPerRank(calls), Configs(calls, config)),
            10 + Pieces(ranks, calls) / 224);
}

std::string NameOfGroup(const ::testing::TestParamInfo<std::tuple<Over, int, int>>& info) {
  const auto [over, ranks, calls] = info.param;
  return std::string(NameOf(over)) + std::to_string(ranks) + "Ranks" + std::to_string(calls) +
         "Calls";
}

INSTANTIATE_TEST_SUITE_P(Calls, GroupTest,
                         ::testing::Combine(::testing::Values(Over::kLocal, Over::kNccl),
                                            ::testing::Values(2, 8), ::testing::Values(2, 31, 100)),
                         NameOfGroup);
INSTANTIATE_TEST_SUITE_P(ManyRanks, GroupTest, ::testing::Values(std::tuple(Over::kNccl, 32, 31)),
                         NameOfGroup);
// The lists of messages and of ends are longer than parameters can be.
INSTANTIATE_TEST_SUITE_P(ManyCalls, GroupTest,
                         ::testing::Values(std::tuple(Over::kLocal, 8, kManyCalls),
                                           std::tuple(Over::kNccl, 2, kManyCalls),
                                           std::tuple(Over::kNccl, 8, 300),
                                           std::tuple(Over::kNccl, 8, kManyCalls)),
                         NameOfGroup);

// A scale for the whole tensor takes three launches to compress and three to reduce. Over NCCL
// writing and checking headers takes four more.
TEST(UniformGroupTest, WithScalesOfTensorsSharesLaunches) {
  onebitCompressorConfig_t config = kConfig;
  config.block = ONEBIT_BLOCK_TENSOR;
  for (const Over over : {Over::kLocal, Over::kNccl}) {
    const uint64_t of_one = LaunchesOf(over, 4, 5000, {config});
    EXPECT_LE(of_one, over == Over::kNccl ? 14u : 10u) << NameOf(over);
    EXPECT_EQ(LaunchesOf(over, 4, 5000, std::vector(10, config)), of_one) << NameOf(over);
  }
}

// Two kinds of calls: each has its own launches to compress, to reduce, and to decode its own chunk
// and those of the peers.
TEST(MixedGroupTest, OfDifferentBlocksHasLaunchesForEach) {
  std::vector<onebitCompressorConfig_t> configs(12, kConfig);
  for (size_t i = 0; i < configs.size(); i += 2) configs[i].block = 1024;
  for (const Over over : {Over::kLocal, Over::kNccl}) {
    EXPECT_LE(LaunchesOf(over, 4, 5000, configs), 10u + 4) << NameOf(over);
  }
}

}  // namespace
}  // namespace onebit::testing
