// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Dense allreduces in two levels, against the arithmetic of FORMAT.md, section 21.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "perf/common/allreduce_model.h"
#include "tests/collectives/allreduce_case.h"
#include "tests/support/comm_group.h"
#include "tests/support/dense_types.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
using kernels::DenseOp;
using kernels::kDenseOps;
using kernels::kDenseTypes;

Tensor Expected(const std::vector<Tensor>& inputs, const HostMap& hosts, DenseOp op) {
  std::vector<const void*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(input.data());
  Tensor output(inputs[0].count(), inputs[0].type());
  model::DenseAllReduceOnHosts(LayoutOf(hosts), pointers, output.count(), output.type(), op,
                               output.data());
  return output;
}

CommOptions WithLevels(size_t segment_elements = 262'144) {
  return {.timeout_ms = 20'000, .two_level_bytes = 0, .segment_elements = segment_elements};
}

class TwoLevelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  size_t ranks() const { return std::strlen(GetParam()); }
  HostMap hosts() const { return MapOfHosts(GetParam()); }

  std::vector<Tensor> RandomInputs(size_t count, DataType type) {
    std::vector<Tensor> inputs;
    for (size_t rank = 0; rank < ranks(); ++rank)
      inputs.emplace_back(count, type).FillRandom(random_);
    return inputs;
  }

  // Makes the call on every rank, and compares the results with `expected`.
  void ExpectResult(CommGroup& group, const std::vector<Tensor>& inputs, DenseOp op,
                    const Tensor& expected, bool is_in_place) {
    group.Run([&](int rank) {
      const Tensor& input = inputs[static_cast<size_t>(rank)];
      SCOPED_TRACE(::testing::Message()
                   << "type " << ApiType(input.type()) << " op " << ApiOp(op) << " count "
                   << input.count() << (is_in_place ? " in place" : "") << " rank " << rank);
      Tensor sent(input.count(), input.type());
      Tensor received(input.count(), input.type());
      sent.CopyFrom(input);
      Tensor& output = is_in_place ? sent : received;
      ASSERT_EQ(onebitAllReduce(sent.data(), output.data(), input.count(), ApiType(input.type()),
                                ApiOp(op), nullptr, group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      EXPECT_TRUE(output.HasBytesOf(expected));
      EXPECT_TRUE(sent.HasIntactGuards() && received.HasIntactGuards());
    });
  }

  std::mt19937 random_{8123};
};

TEST_P(TwoLevelsTest, ReduceEveryType) {
  CommGroup whole(OnHosts(GetParam(), WithLevels()));
  CommGroup segments(OnHosts(GetParam(), WithLevels(1000)));
  for (const DataType type : kDenseTypes) {
    for (const DenseOp op : kDenseOps) {
      for (const size_t count : {0, 1, 65, 1001, 20'001}) {
        const std::vector<Tensor> inputs = RandomInputs(count, type);
        const Tensor expected = Expected(inputs, hosts(), op);
        const bool is_in_place = random_() % 2 == 0;
        ExpectResult(whole, inputs, op, expected, is_in_place);
        ExpectResult(segments, inputs, op, expected, !is_in_place);
      }
    }
  }
}

// Sums of 16-bit floats pass as means, so that an average overflows nowhere.
TEST_P(TwoLevelsTest, AveragesOfLargeHalvesAreFinite) {
  CommGroup group(OnHosts(GetParam(), WithLevels()));
  for (const double value : {60'000.0, 0x1p-24, -0x1p-24 * 3}) {
    std::vector<Tensor> inputs;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      inputs.emplace_back(100, DataType::kF16).Fill(value);
    }
    ExpectResult(group, inputs, DenseOp::kAverage, inputs[0], /*is_in_place=*/false);
  }
}

TEST_P(TwoLevelsTest, NanAndInfinityReachEveryRank) {
  CommGroup group(OnHosts(GetParam(), WithLevels()));
  const auto last = static_cast<int>(ranks()) - 1;
  group.Run([&](int rank) {
    std::vector<float> values(1000, 1);
    if (rank == last) {
      values[3] = std::numeric_limits<float>::quiet_NaN();
      values[999] = -std::numeric_limits<float>::infinity();
    }
    ASSERT_EQ(onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                              nullptr, group.comm(rank), nullptr),
              onebitSuccess);
    EXPECT_TRUE(std::isnan(values[3]));
    EXPECT_EQ(values[999], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(values[4], 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, TwoLevelsTest,
                         ::testing::Values("aabb", "abab", "aab", "abb", "aaaabbc", "abcabc",
                                           "aaaabbbb"),
                         [](const auto& info) { return std::string(info.param); });

// Short calls take the usual two exchanges, and so do groups of ranks on one host, or on hosts of
// their own.
TEST(LevelChoiceTest, IsMadeByBytesAndHosts) {
  const CommOptions automatic = {.timeout_ms = 20'000};
  for (const char* const letters : {"aabb", "aaaa", "abcd"}) {
    CommGroup group(OnHosts(letters, automatic));
    group.Run([&](int rank) {
      std::vector<float> values(100'000, 1);
      uint64_t calls = 0;
      for (const size_t count : {1000, 100'000}) {
        ASSERT_EQ(onebitAllReduce(values.data(), values.data(), count, onebitFloat32, onebitAvg,
                                  nullptr, group.comm(rank), nullptr),
                  onebitSuccess);
        const bool takes_two = std::string(letters) == "aabb" && count == 100'000;
        calls += takes_two ? 1 : 0;
        EXPECT_EQ(StatsOf(group.comm(rank)).two_level_calls, calls) << letters << " " << count;
      }
    });
  }
}

// The bytes that the ranks of a host send to other hosts.
TEST(LevelBytesTest, AreThoseOfOneRankPerHost) {
  constexpr size_t kCount = 1 << 16;
  CommGroup group(OnHosts("aaaabbbb", WithLevels()));
  std::vector<uint64_t> sent(8);
  group.Run([&](int rank) {
    std::vector<float> values(kCount, 1);
    ASSERT_EQ(onebitAllReduce(values.data(), values.data(), kCount, onebitFloat32, onebitAvg,
                              nullptr, group.comm(rank), nullptr),
              onebitSuccess);
    sent[static_cast<size_t>(rank)] = StatsOf(group.comm(rank)).network_bytes;
  });
  for (const size_t first : {0, 4}) {
    uint64_t bytes = 0;
    for (size_t rank = first; rank < first + 4; ++rank) bytes += sent[rank];
    // 2 (G - 1) / G of the tensor, and a header for each of the eight messages.
    EXPECT_EQ(bytes, kCount * sizeof(float) + 8 * 64);
  }
}

TEST(LevelChoiceTest, RanksHaveToAgree) {
  std::vector<CommOptions> options = OnHosts("aabb", WithLevels());
  options[3].two_level_bytes = 1 << 20;
  CommGroup group(options);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    std::vector<float> values(100, 1);
    return onebitAllReduce(values.data(), values.data(), values.size(), onebitFloat32, onebitAvg,
                           nullptr, group.comm(rank), nullptr);
  });
  for (const Outcome& outcome : outcomes) EXPECT_NE(outcome.result, onebitSuccess);
  EXPECT_NE(outcomes[3].text.find("two levels (ONEBIT_TWO_LEVEL_BYTES)"), std::string::npos)
      << outcomes[3].text;
}

}  // namespace
}  // namespace onebit::testing
