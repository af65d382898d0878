// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The number of kernel launches of a call. Small tensors take less time to compute than to launch.
#include <barrier>
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "tests/cuda/cuda_test_memory.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

// Set before the stand-in reads it: over NCCL each rank needs a device.
[[maybe_unused]] const int settings = setenv("CUDA_STAND_IN_DEVICES", "64", 1);

uint64_t Launches() {
  onebitTestCudaCounts counts;
  onebitTestCudaGetCounts(&counts);
  return counts.launches;
}

// Returns the launches of a call with this many elements per rank.
uint64_t LaunchesOf(Over over, int ranks, size_t elements_per_rank) {
  constexpr int kMeasured = 2;
  const size_t count = static_cast<size_t>(ranks) * elements_per_rank;
  std::barrier everybody(ranks);
  uint64_t before = 0;
  uint64_t after = 0;
  RunDeviceRanks(over, ranks, [&](onebitComm_t comm, int rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.memory = onebitMemoryDevice;
    onebitCompressor_t created = nullptr;
    EXPECT_EQ(onebitCompressorCreate(&created, comm, count, onebitFloat32, &config), onebitSuccess)
        << onebitGetLastError(nullptr);
    const UniqueCompressor compressor(created);
    const CudaStream stream;
    const std::vector<float> values(count, static_cast<float>(rank) - 1);
    const CudaBuffer buffer(std::as_bytes(std::span(values)));
    for (int call = 0; call <= kMeasured; ++call) {
      EXPECT_EQ(onebitAllReduce(buffer.data(), buffer.data(), count, onebitFloat32, onebitAvg,
                                compressor.get(), comm, stream.handle()),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      if (call != 0) continue;
      stream.Synchronize();
      everybody.arrive_and_wait();
      if (rank == 0) before = Launches();
      everybody.arrive_and_wait();
    }
    stream.Synchronize();
    everybody.arrive_and_wait();
    if (rank == 0) after = Launches();
    everybody.arrive_and_wait();
  });
  const uint64_t calls = static_cast<uint64_t>(ranks) * kMeasured;
  EXPECT_EQ((after - before) % calls, 0u);
  const uint64_t launches = (after - before) / calls;
  std::cout << ranks << " ranks over " << NameOf(over) << ", " << elements_per_rank
            << " elements each: " << launches << " launches a call\n";
  return launches;
}

class LaunchesTest : public ::testing::TestWithParam<std::tuple<Over, int>> {};

TEST_P(LaunchesTest, AreAtMostTenPerCallForAnyNumberOfRanks) {
  const auto [over, ranks] = GetParam();
  EXPECT_LE(LaunchesOf(over, ranks, 4096), 10u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaunchesTest,
                         ::testing::Combine(::testing::Values(Over::kLocal, Over::kNccl),
                                            ::testing::Values(2, 8, 32, 64)),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

// A tensor travels in many segments.
TEST(LongTensorTest, TakesAtMostTenLaunches) {
  for (const Over over : {Over::kLocal, Over::kNccl}) {
    EXPECT_LE(LaunchesOf(over, 2, 1 << 23), 10u) << NameOf(over);
    EXPECT_LE(LaunchesOf(over, 8, (1 << 20) - 4096), 10u) << NameOf(over);
  }
}

}  // namespace
}  // namespace onebit::testing
