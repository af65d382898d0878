// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One allreduce of numbers with a normal distribution must lose what the codec loses in two passes:
// a wrong scale, grid or partition would show here even if both sides agreed on it.
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collectives/low_bit_calls.h"
#include "tests/support/comm_group.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

#if ONEBIT_HAS_SANITIZER
constexpr size_t kCount = 1 << 16;
#else
constexpr size_t kCount = 1 << 19;
#endif

class LowBitErrorTest
    : public ::testing::TestWithParam<std::tuple<int, std::pair<onebitCodec_t, double>>> {};

TEST_P(LowBitErrorTest, OfOneCallIsThatOfTwoPasses) {
  const auto [ranks, expected] = GetParam();
  CommGroup group(ranks);
  std::vector<std::vector<float>> inputs(static_cast<size_t>(ranks), std::vector<float>(kCount));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  std::vector<double> mean(kCount);
  for (std::vector<float>& input : inputs) {
    for (size_t i = 0; i < kCount; ++i) {
      input[i] = normal(random);
      mean[i] += static_cast<double>(input[i]) / ranks;
    }
  }
  std::vector<std::vector<float>> outputs = inputs;
  group.Run([&, codec = expected.first](int rank) {
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.codec = codec;
    config.mode = onebitModePlain;
    const UniqueCompressor compressor =
        NewCompressor(group.comm(rank), kCount, onebitFloat32, config);
    float* const x = outputs[static_cast<size_t>(rank)].data();
    ASSERT_EQ(onebitAllReduce(x, x, kCount, onebitFloat32, onebitAvg, compressor.get(),
                              group.comm(rank), nullptr),
              onebitSuccess)
        << onebitGetLastError(nullptr);
  });
  double lost = 0, norm = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double error = static_cast<double>(outputs[0][i]) - mean[i];
    lost += error * error;
    norm += mean[i] * mean[i];
  }
  const double error = std::sqrt(lost / norm);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_NEAR(error, expected.second, expected.second / 20) << TextOf(expected.first);
  for (const std::vector<float>& output : outputs) EXPECT_EQ(output, outputs[0]);
}

INSTANTIATE_TEST_SUITE_P(Codecs, LowBitErrorTest,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(std::pair(onebitCodecFp4, 0.155),
                                                              std::pair(onebitCodecInt8, 0.0099),
                                                              std::pair(onebitCodecInt2, 0.48))),
                         [](const auto& info) {
                           return std::string(TextOf(std::get<1>(info.param).first)) +
                                  std::to_string(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace onebit::testing
