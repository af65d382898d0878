// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// NaN and infinity under codecs with a code for each element: without error feedback only their
// blocks suffer, with it the call changes nothing, as with signs.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/residuals.h"
#include "tests/support/tensor.h"

namespace onebit::testing {
namespace {

using kernels::DataType;

constexpr int kRanks = 3;
// A block of bf16 is one element.
constexpr size_t BlockOf(onebitCodec_t codec) { return codec == onebitCodecBf16 ? 1 : 64; }
constexpr size_t kCount = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

onebitCompressorConfig_t ConfigOf(onebitCodec_t codec, onebitMode_t mode,
                                  onebitCollective_t collective = onebitCollectiveAllReduce) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.codec = codec;
  config.mode = mode;
  config.collective = collective;
  config.block = static_cast<int32_t>(BlockOf(codec));
  config.tensorId = 9;  // decides the draws of stochastic rounding
  return config;
}

// One allreduce on each rank, with `bad` as an element of rank 1.
struct Results {
  std::vector<std::vector<float>> outputs;
  std::vector<onebitCompressorStats_t> stats;
};

Results AllReduceWith(CommGroup& group, onebitCodec_t codec, size_t element, float bad) {
  Results results = {std::vector<std::vector<float>>(kRanks, std::vector<float>(kCount)),
                     std::vector<onebitCompressorStats_t>(kRanks)};
  group.Run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<float> input(kCount);
    for (size_t i = 0; i < kCount; ++i) input[i] = std::sin(static_cast<float>(i * 7 + r));
    if (rank == 1 && element < kCount) input[element] = bad;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, ConfigOf(codec, onebitModePlain));
    ASSERT_EQ(onebitAllReduce(input.data(), results.outputs[r].data(), kCount, onebitFloat32,
                              onebitAvg, compressor.get(), group.comm(rank), nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    results.stats[r] = StatsOf(compressor.get());
  });
  return results;
}

class PlainTest : public ::testing::TestWithParam<onebitCodec_t> {};

// Chunks begin at multiples of 384 elements: element 384 is in the first block of chunk 1.
TEST_P(PlainTest, OnlyTheBlockOfAValueThatIsNotFiniteIsLost) {
  for (const CommOptions& options : {kPatient, kPatientOneExchange}) {
    CommGroup group(kRanks, options);
    const Results good = AllReduceWith(group, GetParam(), kCount, 0);
    for (const float bad : {kNan, std::numeric_limits<float>::infinity(), 3.4e38f}) {
      const Results results = AllReduceWith(group, GetParam(), 384, bad);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        for (size_t i = 0; i < kCount; ++i) {
          const bool is_lost = i >= 384 && i < 384 + BlockOf(GetParam());
          ASSERT_EQ(std::isnan(results.outputs[rank][i]), is_lost) << i;
          if (!is_lost) {
            ASSERT_EQ(results.outputs[rank][i], good.outputs[rank][i]) << i;
          }
        }
        EXPECT_GT(results.stats[rank].nonfinite_blocks, 0u);
        EXPECT_EQ(results.stats[rank].nonfinite_calls, 0u);
        EXPECT_EQ(results.stats[rank].epoch, 1u);
        EXPECT_EQ(good.stats[rank].nonfinite_blocks, 0u);
      }
    }
  }
}

TEST_P(PlainTest, CollectivesOfPartsLoseTheBlockOnItsReceiversAlone) {
  CommGroup group(kRanks);
  for (const onebitCollective_t collective : kChunkCollectives) {
    SCOPED_TRACE(TextOf(collective));
    group.Run([&](int rank) {
      constexpr size_t kPart = 200;
      Tensor input(kPart * SendParts(collective, kRanks), DataType::kF32);
      Tensor output(kPart * ReceiveParts(collective, kRanks), DataType::kF32);
      input.Fill(1.0f);
      if (rank == 1) input.Set(0, kNan);  // of the part for rank 0, or of the only one
      const UniqueCompressor compressor =
          NewCompressor(group.comm(rank), kPart, onebitFloat32,
                        ConfigOf(GetParam(), onebitModePlain, collective));
      ASSERT_EQ(MakeCall(collective,
                         {.send = input.data(),
                          .receive = output.data(),
                          .count = kPart,
                          .compressor = compressor.get()},
                         group.comm(rank)),
                onebitSuccess)
          << onebitGetLastError(nullptr);
      const bool receives_it = collective == onebitCollectiveAllGather || rank == 0;
      const size_t first = collective == onebitCollectiveReduceScatter ? 0 : kPart;
      for (size_t i = 0; i < output.count(); ++i) {
        const bool is_lost = receives_it && i >= first && i < first + BlockOf(GetParam());
        ASSERT_EQ(std::isnan(output.Get(i)), is_lost) << i;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, PlainTest, ::testing::ValuesIn(kCodesCodecs),
                         [](const auto& info) { return std::string(TextOf(info.param)); });

class FeedbackTest : public ::testing::TestWithParam<onebitCodec_t> {};

TEST_P(FeedbackTest, ACallWithANanChangesNothing) {
  for (const CommOptions& options : {kPatient, kPatientOneExchange}) {
    CommGroup group(kRanks, options);
    group.Run([&](int rank) {
      std::vector<float> input(kCount);
      std::vector<float> output(kCount);
      for (size_t i = 0; i < kCount; ++i) input[i] = std::sin(static_cast<float>(i + 1));
      const UniqueCompressor compressor = NewCompressor(group.comm(rank), kCount, onebitFloat32,
                                                        ConfigOf(GetParam(), onebitModeEf));
      const auto call = [&] {
        return onebitAllReduce(input.data(), output.data(), kCount, onebitFloat32, onebitAvg,
                               compressor.get(), group.comm(rank), nullptr);
      };
      ASSERT_EQ(call(), onebitSuccess);
      const Residuals before = ResidualsOf(compressor.get());
      const float good = input[7];
      if (rank == 1) input[7] = kNan;
      ASSERT_EQ(call(), onebitSuccess);
      for (const float value : output) ASSERT_TRUE(std::isnan(value));
      EXPECT_EQ(ResidualsOf(compressor.get()), before);
      EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
      EXPECT_EQ(StatsOf(compressor.get()).nonfinite_blocks, rank == 1 ? 1u : 0u);
      EXPECT_EQ(StatsOf(compressor.get()).epoch, 1u);
      input[7] = good;
      ASSERT_EQ(call(), onebitSuccess);
      EXPECT_EQ(StatsOf(compressor.get()).epoch, 2u);
      for (const float value : output) ASSERT_TRUE(std::isfinite(value));
    });
  }
}

// What the residual lacks would be lost for ever, so an output that overflows fails the call.
TEST_P(FeedbackTest, ASumThatOverflowsItsTypeChangesNothing) {
  CommGroup group(kRanks);
  group.Run([&](int rank) {
    Tensor input(kCount, DataType::kF16);
    Tensor output(kCount, DataType::kF16);
    input.Fill(60'000.0f);
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat16, ConfigOf(GetParam(), onebitModeEf));
    ASSERT_EQ(onebitAllReduce(input.data(), output.data(), kCount, onebitFloat16, onebitSum,
                              compressor.get(), group.comm(rank), nullptr),
              onebitSuccess);
    for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(std::isnan(output.Get(i)));
    EXPECT_EQ(StatsOf(compressor.get()).nonfinite_calls, 1u);
    EXPECT_EQ(StatsOf(compressor.get()).epoch, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackTest,
                         ::testing::Values(onebitCodecFp4, onebitCodecInt8, onebitCodecUint8mm,
                                           onebitCodecInt2, onebitCodecBf16),
                         [](const auto& info) { return std::string(TextOf(info.param)); });

}  // namespace
}  // namespace onebit::testing
