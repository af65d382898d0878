// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks whose calls look alike but differ: swapped, skipped, or with residuals of another age.
// Every rank must notice at once.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"

namespace onebit::testing {
namespace {

constexpr size_t kCount = 2000;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// One rank swaps the calls of two tensors of equal size. Two good calls come first, so that there
// are residuals to lose.
class SwappedTensorsTest : public ::testing::TestWithParam<bool> {};

TEST_P(SwappedTensorsTest, AreCaughtAndResidualsKept) {
  constexpr int kRanks = 4;
  CommGroup group(kRanks, GetParam() ? kPatientOneExchange : kPatient);
  struct Pair {
    UniqueCompressor first, second;
  };
  std::vector<Pair> pairs;
  for (int rank = 0; rank < kRanks; ++rank) {
    const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    UniqueCompressor first = NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    UniqueCompressor second = NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    pairs.push_back({std::move(first), std::move(second)});
  }
  const auto reduce = [&](int rank, const UniqueCompressor& compressor) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 17) - 8;
    return onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                           compressor.get(), group.comm(rank), nullptr);
  };
  group.Run([&](int rank) {
    const Pair& pair = pairs[static_cast<size_t>(rank)];
    ASSERT_EQ(reduce(rank, pair.first), onebitSuccess);
    ASSERT_EQ(reduce(rank, pair.second), onebitSuccess);
  });
  std::vector<std::array<Residuals, 2>> before;
  for (const Pair& pair : pairs) {
    before.push_back({ResidualsOf(pair.first.get()), ResidualsOf(pair.second.get())});
  }
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    const Pair& pair = pairs[static_cast<size_t>(rank)];
    return reduce(rank, rank == 2 ? pair.second : pair.first);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_TRUE(Contains(outcome.text, "tensor id 0 here, 1 there") ||
                Contains(outcome.text, "tensor id 1 here, 0 there"))
        << outcome.text;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    group.Destroy(rank);
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(ResidualsOf(pairs[r].first.get()), before[r][0]);
    EXPECT_EQ(ResidualsOf(pairs[r].second.get()), before[r][1]);
    EXPECT_EQ(StatsOf(pairs[r].first.get()).epoch, 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Exchanges, SwappedTensorsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

// With one exchange each rank computes all results with its own replica of the server residual. A
// replica that was reset on one rank must be noticed after any number of calls.
TEST(ReplicaAgeTest, ResetOnOneRankIsCaught) {
  for (const int calls : {1, 2, 255, 256, 510}) {
    SCOPED_TRACE(calls);
    CommGroup group(3, kPatientOneExchange);
    std::vector<UniqueCompressor> compressors;
    for (int rank = 0; rank < 3; ++rank) {
      const onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      compressors.push_back(NewCompressor(group.comm(rank), 50, onebitFloat32, config));
    }
    const auto reduce = [&](int rank) {
      std::vector<float> values(50, static_cast<float>(rank) - 0.5f);
      return onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                             compressors[static_cast<size_t>(rank)].get(), group.comm(rank),
                             nullptr);
    };
    group.Run([&](int rank) {
      for (int call = 0; call < calls; ++call) ASSERT_EQ(reduce(rank), onebitSuccess);
    });
    ASSERT_EQ(onebitCompressorReset(compressors[1].get()), onebitSuccess);
    for (const Outcome& outcome : group.Call(reduce)) {
      EXPECT_EQ(outcome.result, onebitMismatch);
      EXPECT_TRUE(Contains(outcome.text, "age of the server residual")) << outcome.text;
    }
  }
}

// One rank runs ahead, so its second call meets the first call of the others.
TEST(CallOrderTest, SwappedCallsAreCaught) {
  CommGroup group(3);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    std::vector<float> values(200);
    const auto reduce = [&](size_t count) {
      return onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitSum, nullptr,
                             group.comm(rank), nullptr);
    };
    const size_t counts[] = {rank == 0 ? size_t{100} : size_t{200},
                             rank == 0 ? size_t{200} : size_t{100}};
    const onebitResult_t result = reduce(counts[0]);
    return result != onebitSuccess ? result : reduce(counts[1]);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitMismatch);
}

TEST(CallOrderTest, SkippedCallIsCaughtByTheNextOne) {
  CommGroup group(3);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    std::vector<float> values(10);
    const auto reduce = [&] {
      return onebitAllReduce(values.data(), values.data(), 10, onebitFloat32, onebitSum, nullptr,
                             group.comm(rank), nullptr);
    };
    if (rank != 2) {
      const onebitResult_t result = onebitBarrier(group.comm(rank), nullptr);
      if (result != onebitSuccess) return result;
    }
    return reduce();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch);
    EXPECT_TRUE(Contains(outcome.text, "collective")) << outcome.text;
  }
}

}  // namespace
}  // namespace onebit::testing
