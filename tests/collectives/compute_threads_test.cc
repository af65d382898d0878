// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Threads that share the caller's computing: dense results, errors, and the end of the threads.
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/process_figures.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 400'000;

CommOptions WithThreads(uint32_t threads) {
  return {.timeout_ms = 20'000, .segment_elements = 65'536, .compute_threads = threads};
}

onebitResult_t DenseSum(CommGroup& group, int rank, std::vector<float>* values) {
  return onebitAllReduce(values->data(), values->data(), values->size(), onebitFloat32, onebitSum,
                         nullptr, group.comm(rank), nullptr);
}

TEST(ComputeThreadsTest, DenseSumsHaveTheSameBytes) {
  constexpr int kRanks = 3;
  std::mt19937 random(20);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kCount));
  for (auto& input : inputs) {
    for (float& value : input) value = normal(random);
  }
  std::vector<std::vector<float>> alone = inputs;
  std::vector<std::vector<float>> helped = inputs;
  CommGroup without(kRanks, WithThreads(0));
  without.Run([&](int rank) {
    ASSERT_EQ(DenseSum(without, rank, &alone[static_cast<size_t>(rank)]), onebitSuccess);
  });
  CommGroup with(kRanks, WithThreads(2));
  with.Run([&](int rank) {
    ASSERT_EQ(DenseSum(with, rank, &helped[static_cast<size_t>(rank)]), onebitSuccess);
  });
  EXPECT_EQ(alone, helped);
}

TEST(ComputeThreadsTest, StartWithTheFirstLargeTensorAndEndWithTheCommunicator) {
  constexpr int kRanks = 2;
  const size_t before = Threads();
  {
    CommGroup group(kRanks, WithThreads(2));
    std::vector<std::vector<float>> small(kRanks, std::vector<float>(100));
    group.Run([&](int rank) {
      ASSERT_EQ(DenseSum(group, rank, &small[static_cast<size_t>(rank)]), onebitSuccess);
    });
    EXPECT_EQ(Threads(), before);
    std::vector<std::vector<float>> large(kRanks, std::vector<float>(kCount));
    group.Run([&](int rank) {
      ASSERT_EQ(DenseSum(group, rank, &large[static_cast<size_t>(rank)]), onebitSuccess);
    });
    EXPECT_EQ(Threads(), before + 2 * kRanks);
    EXPECT_EQ(StatsOf(group.comm(0)).compute_threads, 2u);
  }
  EXPECT_EQ(Threads(), before);
}

// The abort comes at different times, some of them while threads run steps. Afterwards nothing may
// refer to the buffers, which end with this test; sanitizers would notice.
TEST(ComputeThreadsTest, AbortAtAnyTimeLeavesNoThreadInTheBuffers) {
  constexpr int kRanks = 3;
  std::mt19937 random(21);
  for (int round = 0; round < 20; ++round) {
    CommGroup group(kRanks, WithThreads(2));
    std::vector<std::vector<float>> values(kRanks, std::vector<float>(kCount, 1.0f));
    const auto delay = std::chrono::microseconds(random() % 3000);
    std::thread aborter([&] {
      std::this_thread::sleep_for(delay);  // to abort at any time
      EXPECT_EQ(onebitCommAbort(group.comm(1)), onebitSuccess);
    });
    group.Run([&](int rank) {
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      onebitCompressor_t compressor = nullptr;
      if (onebitCompressorCreate(&compressor, group.comm(rank), kCount, onebitFloat32, &config) !=
          onebitSuccess) {
        return;
      }
      const UniqueCompressor owned(compressor);
      std::vector<float>& mine = values[static_cast<size_t>(rank)];
      for (int call = 0; call < 100; ++call) {
        if (onebitAllReduce(mine.data(), mine.data(), kCount, onebitFloat32, onebitAvg, compressor,
                            group.comm(rank), nullptr) != onebitSuccess) {
          return;
        }
      }
    });
    aborter.join();
  }
}

}  // namespace
}  // namespace onebit::testing
