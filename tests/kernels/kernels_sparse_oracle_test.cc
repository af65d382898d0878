// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scalar sparse kernels against numbers of another implementation (numpy), and against what
// their mathematics promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/sparse_values.h"
#include "kernels/sparse.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;

// Content of a packet.
struct Content {
  std::vector<size_t> indices;
  std::vector<float> values;
};

std::vector<float> OracleInput() {
  std::vector<float> x(4096);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<int>((1103 * i + 17) % 4093) - 2046) / 512;
  }
  return x;
}

Bytes PacketOf(const std::vector<float>& x, SparseFormat format, const Draws& draws = {}) {
  Bytes packet(format.Bytes(x.size()));
  reference::SparseCompress({.input = x.data(), .count = x.size()}, 1, format, draws,
                            packet.data());
  return packet;
}

std::vector<float> Decoded(const Bytes& packet, SparseFormat format, size_t count,
                           const Draws& draws = {}) {
  const void* const packets[] = {packet.data()};
  std::vector<float> output(count);
  reference::SparseAverage({.packets = packets, .ranks = 1, .count = count, .is_sum = true}, format,
                           draws, output.data());
  return output;
}

std::vector<size_t> NonzeroPlaces(const std::vector<float>& values) {
  std::vector<size_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) places.push_back(i);
  }
  return places;
}

Content ContentOf(const Bytes& packet, SparseFormat format, size_t count) {
  Content content;
  for (size_t j = 0; j < format.Selected(count); ++j) {
    content.indices.push_back(reference::IndexAt(packet.data() + format.IndexOffset(count), j));
    float value;
    memcpy(&value, packet.data() + format.ValueOffset(count) + j * sizeof(value), sizeof(value));
    content.values.push_back(value);
  }
  return content;
}

TEST(SparseOracleTest, TopKSelectsTheKnownElements) {
  const SparseFormat format = {{.k = 8, .values = SparseValues::kF32}, 4096};
  const Bytes packet = PacketOf(OracleInput(), format);
  const Content content = ContentOf(packet, format, 4096);
  EXPECT_THAT(content.indices, ElementsAre(590, 1347, 2104, 2412, 2861, 3169, 3618, 3926));
  EXPECT_THAT(content.values, ElementsAre(-3.99609375f, 3.99609375f, 3.994140625f, -3.990234375f,
                                          3.9921875f, -3.9921875f, 3.990234375f, -3.994140625f));
  const Bytes indices(packet.begin(), packet.begin() + 12);
  EXPECT_THAT(indices,
              ElementsAre(0x4e, 0x32, 0x54, 0x38, 0xc8, 0x96, 0x2d, 0x1b, 0xc6, 0x22, 0x6e, 0xf5));
  EXPECT_EQ(packet.size(), 16 + 8 * sizeof(float));
}

TEST(SparseOracleTest, TwoMagnitudesStandForTheKnownValues) {
  const SparseFormat format = {{.k = 8}, 4096};
  const Bytes packet = PacketOf(OracleInput(), format);
  ASSERT_EQ(packet.size(), 16u + 16 + 2);
  std::vector<float> sent;
  for (const float value : Decoded(packet, format, 4096)) {
    if (value != 0) sent.push_back(value);
  }
  EXPECT_THAT(sent,
              ElementsAre(-4.0f, 4.0f, 4.0f, -3.984375f, 3.984375f, -3.984375f, 3.984375f, -4.0f));
}

// Sends all elements, and expects each within the spread of their magnitudes and what a rounding to
// bf16 adds. Signs stay. Returns what is sent.
std::vector<float> ExpectCloseValues(const std::vector<float>& x) {
  const SparseFormat format = {{.k = static_cast<uint16_t>(x.size())}, x.size()};
  const std::vector<float> sent = Decoded(PacketOf(x, format), format, x.size());
  double smallest = INFINITY, largest = 0;
  for (const float value : x) {
    smallest = std::min(smallest, std::abs(double{value}));
    largest = std::max(largest, std::abs(double{value}));
  }
  const double bound = largest - smallest + std::max(largest * 0x1.01p-8, 0x1p-134);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(double{sent[i]} - x[i]), bound) << x[i] << " sent as " << sent[i];
  }
  return sent;
}

TEST(SparseOracleTest, NearMagnitudesAreNotLost) {
  EXPECT_THAT(ExpectCloseValues({1.0050f, -1.0055f, 1.006f, 1.0065f, -1.007f}),
              ElementsAre(1.0078125f, -1.0078125f, 1.0078125f, 1.0078125f, -1.0078125f));
  Random random(21);
  for (int exponent = -149; exponent < 126; ++exponent) {
    for (const float spread : {0x1p-23f, 0x1p-16f, 0x1p-9f, 0x1p-7f, 0.5f}) {
      for (const size_t count : {1, 2, 5, 130}) {
        const float least = std::ldexp(1 + static_cast<float>(random() % 256) / 256, exponent);
        std::vector<float> x(count);
        for (float& value : x) {
          value = least + least * spread * std::abs(RandomF32(Numbers::kOrdinary, random));
          if (random() % 2 == 0) value = -value;
        }
        ExpectCloseValues(x);
      }
    }
  }
}

// Both magnitudes may round to 2^127, and their sum to infinity.
TEST(SparseOracleTest, HugeMagnitudesAreNotLost) {
  const float largest = std::nextafter(0x1p127f, 0.0f);
  const float below = std::nextafter(largest, 0.0f);
  EXPECT_THAT(ExpectCloseValues({largest, -below, below, -largest}),
              ElementsAre(0x1p127f, -0x1p127f, 0x1p127f, -0x1p127f));
  const SparseFormat format = {{.k = 4}, 4};
  const Bytes packet = PacketOf({largest, below, below, largest}, format);
  EXPECT_EQ(reference::SparseCodeAt(packet.data() + format.ValueOffset(4), 0),
            reference::kHighCode);
}

TEST(SparseOracleTest, RandKDrawsTheKnownElements) {
  const SparseFormat format = {{.k = 8, .values = SparseValues::kF32, .is_random = true}, 4096};
  const Draws draws = {.seed = 9, .tensor = 1, .stream = kSharedStream};
  const std::vector<float> ones(4096, 1.0f);
  const Bytes packet = PacketOf(ones, format, draws);
  EXPECT_EQ(packet.size(), 8 * sizeof(float));
  EXPECT_THAT(NonzeroPlaces(Decoded(packet, format, 4096, draws)),
              ElementsAre(625, 699, 1958, 2708, 3392, 3607, 3619, 4056));
}

TEST(SparseOracleTest, EqualMagnitudesSelectTheLowestIndices) {
  const SparseFormat format = {{.k = 5, .values = SparseValues::kF32}, 4096};
  std::vector<float> x(4096, 2.5f);
  for (size_t i = 0; i < x.size(); i += 2) x[i] = -2.5f;
  EXPECT_THAT(ContentOf(PacketOf(x, format), format, 4096).indices, ElementsAre(0, 1, 2, 3, 4));
}

TEST(SparseOracleTest, BothZerosAreEquallyLarge) {
  const SparseFormat format = {{.k = 4, .values = SparseValues::kF32}, 4096};
  std::vector<float> x(64, -0.0f);
  for (size_t i = 1; i < x.size(); i += 2) x[i] = 0.0f;
  x[40] = -1e-45f;
  const SparseFormat short_format = {{.k = 4, .values = SparseValues::kF32}, 64};
  EXPECT_THAT(ContentOf(PacketOf(x, short_format), short_format, 64).indices,
              ElementsAre(0, 1, 2, 40));
  EXPECT_EQ(ContentOf(PacketOf(x, format), format, 64).indices.size(), 1u);  // ceil(4 * 64 / 4096)
}

TEST(SparseOracleTest, AShortBlockSendsItsShareRoundedUp) {
  const SparseFormat format = {{.k = 64}, 4096};
  EXPECT_EQ(format.Selected(0), 0u);
  EXPECT_EQ(format.Selected(1), 1u);
  EXPECT_EQ(format.Selected(64), 1u);
  EXPECT_EQ(format.Selected(65), 2u);
  EXPECT_EQ(format.Selected(4095), 64u);
  EXPECT_EQ(format.Selected(4096), 64u);
  EXPECT_EQ(format.Selected(4097), 65u);
  EXPECT_EQ(format.Bytes(4096), 16u + 96 + 16);
  EXPECT_EQ(format.Bytes(8192), 16u + 192 + 32);
  EXPECT_EQ(format.Bytes(0), 0u);
}

TEST(SparseOracleTest, ANanIsSentInTheFirstElementsOfItsBlock) {
  for (const SparseValues values : {SparseValues::kF32, SparseValues::kTwoMagnitudes}) {
    const SparseFormat format = {{.k = 3, .values = values}, 64};
    std::vector<float> x(128, 1.0f);
    x[50] = std::numeric_limits<float>::quiet_NaN();
    x[100] = 7;
    Bytes packet(format.Bytes(x.size()));
    const SparseResult result = reference::SparseCompress({.input = x.data(), .count = x.size()}, 1,
                                                          format, {}, packet.data());
    EXPECT_EQ(result.nonfinite_blocks, 1u);
    EXPECT_FALSE(result.is_finite);
    const std::vector<float> output = Decoded(packet, format, x.size());
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(output[i]), i < 3) << i;
    EXPECT_GT(output[100], 1.0f);
    EXPECT_FALSE(std::isnan(output[64]));
  }
}

TEST(SparseOracleTest, ElementsOutsideTheMaskComeLastAndDecodeToZero) {
  const SparseFormat format = {{.k = 4, .values = SparseValues::kF32}, 8};
  const std::vector<float> x = {9, 9, 9, 9, 9, 1, 2, 9};
  const uint8_t mask = 0b0110'0000;
  Bytes packet(format.Bytes(8));
  reference::SparseCompress({.input = x.data(), .mask = &mask, .count = 8}, 1, format, {},
                            packet.data());
  const Content content = ContentOf(packet, format, 8);
  EXPECT_THAT(content.indices, ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(content.values, ElementsAre(0.0f, 0.0f, 1.0f, 2.0f));
}

TEST(SparseOracleTest, DecayScalesWhatIsOwed) {
  const SparseFormat format = {{.k = 1, .values = SparseValues::kF32}, 4};
  const std::vector<float> x = {1, 2, 3, 4}, e = {8, 4, 0, 0};
  std::vector<float> residual(4);
  Bytes packet(format.Bytes(4));
  reference::SparseCompress(
      {.input = x.data(), .residual_in = e.data(), .residual_out = residual.data(), .count = 4},
      0.5f, format, {}, packet.data());
  EXPECT_THAT(Decoded(packet, format, 4), ElementsAre(5, 0, 0, 0));
  EXPECT_THAT(residual, ElementsAre(0, 4, 3, 4));
}

// Normally distributed, nearly.
float NormalNumber(Random& random) {
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += RandomF32(Numbers::kOrdinary, random) / 2;
  return sum;
}

// The mean of many calls with one input comes close to it: 2 of 16 elements travel, with feedback.
TEST(SparseOracleTest, TheRunningMeanApproachesTheInput) {
  constexpr size_t kCount = 4096;
  for (const SparseValues values : {SparseValues::kF32, SparseValues::kTwoMagnitudes}) {
    const SparseFormat format = {{.k = 2, .values = values}, 16};
    Random random(3);
    std::vector<float> x(kCount), residual(kCount), mean(kCount);
    for (float& value : x) value = NormalNumber(random);
    constexpr int kCalls = 1000;
    std::vector<double> sum(kCount);
    for (int call = 0; call < kCalls; ++call) {
      Bytes packet(format.Bytes(kCount));
      reference::SparseCompress({.input = x.data(),
                                 .residual_in = residual.data(),
                                 .residual_out = residual.data(),
                                 .count = kCount},
                                1, format, {}, packet.data());
      const std::vector<float> sent = Decoded(packet, format, kCount);
      for (size_t i = 0; i < kCount; ++i) sum[i] += sent[i];
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < kCount; ++i) {
      error += std::pow(sum[i] / kCalls - x[i], 2);
      norm += std::pow(x[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.0035);
  }
}

// The mean over epochs of what is sent once, times block / k, has this standard deviation.
TEST(SparseOracleTest, RandKIsUnbiased) {
  constexpr size_t kCount = 4096 + 1000;
  constexpr int kEpochs = 2000;
  const SparseFormat format = {
      {.k = 256, .values = SparseValues::kF32, .is_random = true, .is_unbiased = true}, 4096};
  Random random(4);
  std::vector<float> x(kCount);
  for (float& value : x) value = RandomF32(Numbers::kOrdinary, random);
  std::vector<double> sum(kCount);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Draws draws = {
        .seed = 11, .epoch = static_cast<uint32_t>(epoch), .tensor = 2, .stream = kSharedStream};
    Bytes packet(format.Bytes(kCount));
    cpu::SparseCompress({.input = x.data(), .count = kCount}, 1, format, draws, packet.data());
    const void* const packets[] = {packet.data()};
    std::vector<float> output(kCount);
    cpu::SparseAverage({.packets = packets, .ranks = 1, .count = kCount, .is_sum = true}, format,
                       draws, output.data());
    for (size_t i = 0; i < kCount; ++i) sum[i] += output[i];
  }
  size_t beyond = 0;
  double bias = 0, variance_of_bias = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double share = i < 4096 ? 256.0 / 4096 : 63.0 / 1000;
    const double deviation = std::abs(x[i]) * std::sqrt((1 / share - 1) / kEpochs);
    const double error = sum[i] / kEpochs - x[i];
    beyond += std::abs(error) > 4 * deviation ? 1 : 0;
    bias += error;
    variance_of_bias += deviation * deviation;
  }
  EXPECT_LE(beyond, 2u);  // 0.3 of 5096 are expected
  EXPECT_LT(std::abs(bias), 4 * std::sqrt(variance_of_bias));
}

}  // namespace
}  // namespace onebit::kernels
