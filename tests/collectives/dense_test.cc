// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collectives without a compressor: dense allreduce, broadcast, barrier.
#include <atomic>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "perf/common/allreduce_model.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr uint32_t kSeed = 7101;
constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097, 30'000};
constexpr DataType kTypes[] = {DataType::kF32, DataType::kF16, DataType::kBf16};

class DenseTest : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  std::vector<Tensor> RandomInputs(size_t count, DataType type) {
    std::vector<Tensor> inputs;
    for (int rank = 0; rank < ranks(); ++rank) {
      inputs.emplace_back(count, type);
      inputs.back().FillNormal(random_);
    }
    return inputs;
  }
  std::mt19937 random_{kSeed + static_cast<uint32_t>(GetParam())};
};

Tensor ExpectedSum(const std::vector<Tensor>& inputs, bool is_sum) {
  std::vector<const void*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(input.data());
  Tensor output(inputs[0].count(), inputs[0].type());
  model::DenseAllReduce(pointers, output.count(), output.type(),
                        is_sum ? kernels::DenseOp::kSum : kernels::DenseOp::kAverage,
                        output.data());
  return output;
}

TEST_P(DenseTest, AllReduceIsTheSumInRankOrderRoundedOnce) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed + static_cast<uint32_t>(ranks()));
  CommGroup whole(ranks());
  CommGroup segments(ranks(), {.timeout_ms = 20'000, .segment_elements = 100});
  for (const size_t count : kCounts) {
    for (const DataType type : kTypes) {
      const bool is_sum = random_() % 2 == 0;
      const bool is_in_place = random_() % 2 == 0;
      const size_t offset = random_() % 3;
      const std::vector<Tensor> inputs = RandomInputs(count, type);
      const Tensor expected = ExpectedSum(inputs, is_sum);
      for (CommGroup* group : {&whole, &segments}) {
        group->Run([&](int rank) {
          SCOPED_TRACE(::testing::Message()
                       << count << " elements of type " << ApiType(type)
                       << (is_sum ? ", sum" : ", avg") << (is_in_place ? ", in place" : "")
                       << ", offset " << offset << ", rank " << rank);
          Tensor output(count, type, offset);
          Tensor input(count, type, offset);
          Tensor& sent = is_in_place ? output : input;
          sent.CopyFrom(inputs[static_cast<size_t>(rank)]);
          ASSERT_EQ(
              onebitAllReduce(sent.data(), output.data(), count, ApiType(type),
                              is_sum ? onebitSum : onebitAvg, nullptr, group->comm(rank), nullptr),
              onebitSuccess)
              << onebitGetLastError(nullptr);
          EXPECT_TRUE(output.HasBytesOf(expected));
          EXPECT_TRUE(output.HasIntactGuards());
        });
      }
    }
  }
}

TEST_P(DenseTest, BroadcastCopiesTheRootsBytes) {
  CommGroup whole(ranks());
  CommGroup segments(ranks(), {.timeout_ms = 20'000, .segment_elements = 100});
  for (const size_t count : kCounts) {
    for (int root = 0; root < ranks(); ++root) {
      const DataType type = kTypes[random_() % 3];
      const bool is_in_place = random_() % 2 == 0;
      Tensor sent(count, type);
      sent.FillNormal(random_);
      for (CommGroup* group : {&whole, &segments}) {
        group->Run([&](int rank) {
          SCOPED_TRACE(::testing::Message()
                       << count << " elements from rank " << root << ", rank " << rank);
          Tensor output(count, type);
          if (is_in_place && rank == root) output.CopyFrom(sent);
          const void* input = rank != root ? nullptr : is_in_place ? output.data() : sent.data();
          ASSERT_EQ(onebitBroadcast(input, output.data(), count, ApiType(type), root,
                                    group->comm(rank), nullptr),
                    onebitSuccess)
              << onebitGetLastError(nullptr);
          EXPECT_TRUE(output.HasBytesOf(sent));
          EXPECT_TRUE(output.HasIntactGuards());
        });
      }
    }
  }
}

// If a rank left the barrier early it would see a count that is too small.
TEST_P(DenseTest, BarrierReturnsWhenAllHaveCome) {
  CommGroup group(ranks());
  std::atomic<int> arrived = 0;
  constexpr int kRounds = 50;
  group.Run([&](int rank) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      ASSERT_EQ(onebitBarrier(group.comm(rank), nullptr), onebitSuccess);
      EXPECT_GE(arrived, round * ranks());
    }
  });
  EXPECT_EQ(arrived, kRounds * ranks());
}

TEST_P(DenseTest, NonFiniteValuesFollowTheArithmetic) {
  CommGroup group(ranks());
  constexpr size_t kCount = 200;
  std::vector<Tensor> inputs = RandomInputs(kCount, DataType::kF32);
  const auto last = static_cast<size_t>(ranks() - 1);
  inputs[last].Set(0, std::numeric_limits<float>::infinity());
  inputs[0].Set(199, std::numeric_limits<float>::quiet_NaN());
  const Tensor expected = ExpectedSum(inputs, true);
  group.Run([&](int rank) {
    Tensor output(kCount, DataType::kF32);
    ASSERT_EQ(onebitAllReduce(inputs[static_cast<size_t>(rank)].data(), output.data(), kCount,
                              onebitFloat32, onebitSum, nullptr, group.comm(rank), nullptr),
              onebitSuccess);
    EXPECT_TRUE(output.HasBytesOf(expected));
    EXPECT_EQ(StatsOf(group.comm(rank)).nonfinite_calls, 0u) << "dense calls carry them on";
  });
}

// There are more shapes than cached plans, used in turn.
TEST_P(DenseTest, ManyShapesInTurnGiveRightResults) {
  CommGroup group(ranks());
  group.Run([&](int rank) {
    for (int round = 0; round < 2; ++round) {
      for (size_t count = 1; count <= 100; ++count) {
        std::vector<float> values(count, static_cast<float>(rank + 1));
        ASSERT_EQ(onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum,
                                  nullptr, group.comm(rank), nullptr),
                  onebitSuccess);
        const float sum = static_cast<float>(ranks() * (ranks() + 1)) / 2;
        ASSERT_EQ(values, std::vector<float>(count, sum));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DenseTest, ::testing::Range(1, 10));

// Calls of all kinds in a row on one communicator, each depending on the one before.
TEST(MixedCallsTest, CollectivesOfAllKindsFollowEachOther) {
  constexpr int kRanks = 5;
  constexpr size_t kCount = 777;
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    const onebitComm_t comm = group.comm(rank);
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    const UniqueCompressor compressor = NewCompressor(comm, kCount, onebitFloat32, config);
    std::vector<float> values(kCount, static_cast<float>(rank));
    for (int round = 0; round < 10; ++round) {
      ASSERT_EQ(onebitBroadcast(values.data(), values.data(), kCount, onebitFloat32, round % kRanks,
                                comm, nullptr),
                onebitSuccess);
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                nullptr, comm, nullptr),
                onebitSuccess);
      // All ranks hold the root's value now, exactly: small integers.
      ASSERT_EQ(values, std::vector<float>(kCount, 0.0f)) << "round " << round;
      ASSERT_EQ(onebitBarrier(comm, nullptr), onebitSuccess);
      ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                                compressor.get(), comm, nullptr),
                onebitSuccess);
      ASSERT_EQ(values, std::vector<float>(kCount, 0.0f)) << "round " << round;
    }
  });
}

}  // namespace
}  // namespace onebit::testing
