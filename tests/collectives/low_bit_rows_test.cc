// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-to-all-v with a scale for each row, as a mixture of experts sends its tokens: ragged counts,
// ranks without tokens, one message for each pair of ranks.
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;
namespace reference = kernels::reference;

constexpr uint32_t kSeed = 8123;

// Tokens of `row` elements that ranks send each other.
struct Tokens {
  size_t row;
  std::vector<std::vector<size_t>> counts;              // [from][to], in elements
  std::vector<std::vector<std::vector<float>>> values;  // [from][to]
};

Tokens RandomTokens(size_t ranks, size_t row, std::mt19937& random) {
  Tokens tokens = {row, std::vector(ranks, std::vector<size_t>(ranks)),
                   std::vector(ranks, std::vector<std::vector<float>>(ranks))};
  std::normal_distribution<float> normal;
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const bool is_idle = from == 1 && ranks > 2;  // a rank that sends nothing
      tokens.counts[from][to] = is_idle ? 0 : random() % 9 * row;
      for (size_t i = 0; i < tokens.counts[from][to]; ++i) {
        tokens.values[from][to].push_back(normal(random));
      }
    }
  }
  return tokens;
}

// The packet that `from` makes for `to`, decoded.
std::vector<float> Decoded(const Tokens& tokens, size_t from, size_t to, size_t begin,
                           kernels::LowBitCodec codec, uint32_t tensor_id) {
  const std::vector<float>& input = tokens.values[from][to];
  if (from == to || input.empty()) return input;
  const kernels::LowBitFormat format = {codec, tokens.row};
  const size_t blocks = kernels::BlockCount(input.size(), tokens.row);
  std::vector<uint16_t> scales(blocks);
  std::vector<uint16_t> minimums(blocks);
  std::vector<uint8_t> codes(kernels::CodeBytes(codec, input.size()));
  const kernels::Draws draws = {
      .first = begin, .tensor = tensor_id, .stream = static_cast<uint32_t>(from)};
  reference::LowBitCompress({.input = input.data(), .count = input.size()}, format, draws,
                            {scales.data(), minimums.data(), codes.data()});
  std::vector<float> output(input.size());
  reference::LowBitDecode({scales.data(), minimums.data(), codes.data()}, format, input.size(),
                          nullptr, DataType::kF32, output.data());
  return output;
}

std::vector<size_t> Begins(const std::vector<size_t>& counts) {
  std::vector<size_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), size_t{0});
  return begins;
}

class RowsTest : public ::testing::TestWithParam<onebitCodec_t> {
 protected:
  // Makes one call on all ranks and compares every token with what its sender's packet decodes to.
  void Expect(CommGroup& group, const Tokens& tokens) {
    const auto n = static_cast<size_t>(group.ranks());
    group.Run([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
      config.collective = onebitCollectiveAllToAllv;
      config.mode = onebitModePlain;
      config.codec = GetParam();
      config.block = static_cast<int32_t>(tokens.row);
      config.tensorId = 5;
      const UniqueCompressor compressor = NewCompressor(group.comm(rank), 0, onebitFloat32, config);
      std::vector<float> input;
      std::vector<size_t> received(n);
      uint64_t bytes = 0;
      for (size_t peer = 0; peer < n; ++peer) {
        input.insert(input.end(), tokens.values[r][peer].begin(), tokens.values[r][peer].end());
        received[peer] = tokens.counts[peer][r];
        if (peer == r) continue;
        bytes += 64 + PayloadBytes({KernelCodec(GetParam()), tokens.row}, {tokens.counts[r][peer]});
      }
      const std::vector<size_t> sdispls = Begins(tokens.counts[r]);
      const std::vector<size_t> rdispls = Begins(received);
      std::vector<float> output(rdispls.back() + received.back());
      const onebitCommStats_t before = StatsOf(group.comm(rank));
      ASSERT_EQ(onebitAllToAllv(input.data(), tokens.counts[r].data(), sdispls.data(),
                                output.data(), received.data(), rdispls.data(), onebitFloat32,
                                compressor.get(), group.comm(rank), nullptr),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      const onebitCommStats_t after = StatsOf(group.comm(rank));
      EXPECT_EQ(after.messages_sent - before.messages_sent, n - 1) << "one message for each peer";
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, bytes);
      EXPECT_EQ(StatsOf(compressor.get()).wire_bytes, bytes);
      for (size_t from = 0; from < n; ++from) {
        const size_t begin = Begins(tokens.counts[from])[r];
        const std::vector<float> expected =
            Decoded(tokens, from, r, begin, KernelCodec(GetParam()), 5);
        for (size_t i = 0; i < expected.size(); ++i) {
          const float actual = output[rdispls[from] + i];
          ASSERT_TRUE(actual == expected[i] || (std::isnan(actual) && std::isnan(expected[i])))
              << "from rank " << from << ", element " << i << ": " << actual << " instead of "
              << expected[i];
        }
      }
    });
  }

  std::mt19937 random_{kSeed};
};

TEST_P(RowsTest, EveryTokenHasAScaleOfItsOwn) {
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    CommGroup group(ranks);
    for (const size_t row : {4, 12, 20, 64, 7168}) {
      Expect(group, RandomTokens(static_cast<size_t>(ranks), row, random_));
    }
  }
}

TEST_P(RowsTest, ANanPoisonsItsTokenAlone) {
  CommGroup group(2);
  constexpr size_t kRow = 20;
  Tokens tokens = RandomTokens(2, kRow, random_);
  tokens.counts[0][1] = 5 * kRow;
  tokens.values[0][1].assign(5 * kRow, 0.5f);
  tokens.values[0][1][2 * kRow + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> decoded = Decoded(tokens, 0, 1, 0, KernelCodec(GetParam()), 5);
  for (size_t i = 0; i < decoded.size(); ++i) {
    ASSERT_EQ(std::isnan(decoded[i]), i / kRow == 2) << i;
  }
  Expect(group, tokens);
}

INSTANTIATE_TEST_SUITE_P(Codecs, RowsTest, ::testing::ValuesIn(kLowBitCodecs),
                         [](const auto& info) { return std::string(TextOf(info.param)); });

}  // namespace
}  // namespace onebit::testing
