// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets against numbers of another implementation, and against the bounds on their
// errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/low_bit.h"
#include "kernels/reference/float_formats.h"
#include "kernels/reference/low_bit_codes.h"
#include "kernels/reference/philox.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/low_bit_case.h"
#include "tests/kernels/low_bit_golden.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

Bytes BytesOfHex(const std::string& hex) {
  Bytes bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// The packet of a piece of fp32 numbers, and what it decodes to.
struct RoundTrip {
  std::vector<uint16_t> scales, minimums;
  Bytes codes;
  std::vector<float> values;

  RoundTrip(const LowBitKernels& kernels, const std::vector<float>& x, LowBitFormat format,
            const Draws& draws)
      : scales(BlockCount(x.size(), format.block)),
        minimums(scales.size()),
        codes(CodeBytes(format.codec, x.size())),
        values(x.size()) {
    const CompressInput in = {.input = x.data(), .count = x.size()};
    kernels.compress(in, format, draws, {scales.data(), minimums.data(), codes.data()});
    kernels.decode({scales.data(), minimums.data(), codes.data()}, format, x.size(), nullptr,
                   DataType::kF32, values.data());
  }

  float ScaleAt(size_t i, LowBitFormat format) const {
    return reference::FloatOfBf16(scales[i / format.block]);
  }
};

std::vector<float> RandomNumbers(size_t count, Random& random) {
  const Bytes bytes = RandomElements(DataType::kF32, Numbers::kOrdinary, count, random);
  const auto* numbers = reinterpret_cast<const float*>(bytes.data());
  return {numbers, numbers + count};
}

class LowBitOracleTest : public EachTarget {
 protected:
  Random random_{13};
};

TEST_P(LowBitOracleTest, PacketsEqualThoseOfAnotherImplementation) {
  const std::vector<float> x = GoldenNumbers();
  for (const GoldenPacket& golden : kGoldenPackets) {
    for (const LowBitKernels& kernels : {kReferenceLowBit, kCpuLowBit}) {
      const RoundTrip trip(kernels, x, {golden.codec, kGoldenBlock}, kGoldenDraws);
      for (size_t k = 0; k < 3; ++k) {
        EXPECT_EQ(trip.scales[k], golden.scales[k]);
        EXPECT_EQ(trip.minimums[k], golden.minimums[k]);
      }
      EXPECT_EQ(trip.codes, BytesOfHex(golden.codes)) << static_cast<int>(golden.codec);
      if (golden.relative_error == 0) continue;
      double error = 0, total = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(x[i]) - static_cast<double>(trip.values[i]), 2);
        total += std::pow(static_cast<double>(x[i]), 2);
      }
      EXPECT_NEAR(error / total, golden.relative_error, 1e-9 * golden.relative_error);
    }
  }
}

// The residual is z minus the decoded value, in one rounding.
TEST_P(LowBitOracleTest, ResidualIsWhatTheDecoderMisses) {
  const std::vector<float> x = RandomNumbers(1000, random_), e = RandomNumbers(1000, random_);
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    if (!HasResidual(codec)) continue;
    const LowBitFormat format = {codec, 128};
    std::vector<float> z(1000), kept(1000);
    for (size_t i = 0; i < 1000; ++i) z[i] = x[i] + e[i];
    const RoundTrip trip(kCpuLowBit, z, format, {});
    std::vector<uint16_t> scales(8), minimums(8);
    Bytes codes(trip.codes.size());
    const CompressInput in = {
        .input = x.data(), .residual_in = e.data(), .residual_out = kept.data(), .count = x.size()};
    cpu::LowBitCompress(in, format, {}, {scales.data(), minimums.data(), codes.data()});
    EXPECT_EQ(codes, trip.codes);
    for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(kept[i], z[i] - trip.values[i]) << i;
  }
}

TEST_P(LowBitOracleTest, ErrorsStayWithinTheirBounds) {
  const std::vector<float> x = RandomNumbers(size_t{1} << 14, random_);
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const LowBitFormat format = {codec, 256};
    const RoundTrip trip(kCpuLowBit, x, format, {.seed = 1});
    for (size_t i = 0; i < x.size(); ++i) {
      const float error = std::abs(x[i] - trip.values[i]);
      const float magnitude = std::abs(x[i]);
      const float scale = trip.ScaleAt(i, format);
      const float rounding = 1 + 0x1p-14f;
      switch (codec) {
        case LowBitCodec::kFp4:
          EXPECT_LE(error, scale);
          EXPECT_LE(error, (0.2f * magnitude + scale / 4) * rounding);
          break;
        case LowBitCodec::kInt8:
          EXPECT_LE(error, scale / 2 * rounding);
          break;
        case LowBitCodec::kInt8Stochastic:
          EXPECT_LE(error, scale * rounding);
          break;
        case LowBitCodec::kUint8:
          // The largest number may be beyond 255 steps by the error of a bf16 scale.
          EXPECT_LE(error, scale * rounding);
          break;
        case LowBitCodec::kInt2:
          EXPECT_LE(error,
                    (magnitude <= 2 * scale ? scale / 2 : magnitude - 1.5f * scale) * rounding);
      }
    }
  }
}

// Scaling by a power of two scales values and changes no code.
TEST_P(LowBitOracleTest, PowersOfTwoChangeNoCode) {
  const std::vector<float> x = RandomNumbers(1000, random_);
  for (const LowBitCodec codec : kAllLowBitCodecs) {
    const RoundTrip one(kCpuLowBit, x, {codec, 128}, {.seed = 1});
    for (const int exponent : {-60, -7, 1, 90}) {
      std::vector<float> scaled = x;
      for (float& number : scaled) number = std::ldexp(number, exponent);
      const RoundTrip other(kCpuLowBit, scaled, {codec, 128}, {.seed = 1});
      EXPECT_EQ(other.codes, one.codes);
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(other.values[i], std::ldexp(one.values[i], exponent));
      }
    }
  }
}

// Sums of differences between decoded and given numbers, and their variances by stochastic
// rounding.
struct Bias {
  double sum = 0;
  double variance = 0;

  void Add(double difference, double x, double scale) {
    const double fraction = x / scale - std::floor(x / scale);
    sum += difference;
    variance += scale * scale * fraction * (1 - fraction);
  }
  // In standard errors. Divisions are in fp32, which is allowed for by `rounding`.
  double InErrors(double rounding) const {
    return std::max(0.0, std::abs(sum) - rounding) / std::sqrt(variance + 1e-60);
  }
};

// Over many calls the mean of a stochastically rounded number is the number.
TEST_P(LowBitOracleTest, StochasticRoundingHasNoBias) {
  constexpr uint32_t kTrials = 2000;
  const std::vector<float> x = GoldenNumbers();
  const LowBitFormat format = {LowBitCodec::kInt8Stochastic, kGoldenBlock};
  std::vector<Bias> biases(x.size());
  for (uint32_t epoch = 0; epoch < kTrials; ++epoch) {
    const RoundTrip trip(kCpuLowBit, x, format, {.seed = 5, .epoch = epoch});
    for (size_t i = 0; i < x.size(); ++i) {
      biases[i].Add(trip.values[i] - x[i], x[i], trip.ScaleAt(i, format));
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double rounding = kTrials * 0x1p-22 * std::abs(static_cast<double>(x[i]));
    EXPECT_LT(biases[i].InErrors(rounding), 4.5) << i;
  }
}

// The largest element of a block is not cut off, wherever it lies between two scales.
TEST_P(LowBitOracleTest, StochasticRoundingCutsNothingOff) {
  constexpr size_t kBlocks = 400, kBlock = 32;
  constexpr uint32_t kTrials = 50;
  const LowBitFormat format = {LowBitCodec::kInt8Stochastic, kBlock};
  std::vector<float> x = RandomNumbers(kBlocks * kBlock, random_);
  std::vector<size_t> largest(kBlocks);
  for (size_t k = 0; k < kBlocks; ++k) {
    const auto begin = x.begin() + static_cast<ptrdiff_t>(k * kBlock);
    const auto at = std::max_element(begin, begin + kBlock,
                                     [](float a, float b) { return std::abs(a) < std::abs(b); });
    // All fractions of a step between scales, and all exponents that are not too small.
    *at = std::ldexp(127 * (1 + static_cast<float>(k) / kBlocks), static_cast<int>(k % 16));
    largest[k] = static_cast<size_t>(at - x.begin());
  }
  Bias bias;
  double rounding = 0;
  for (uint32_t epoch = 0; epoch < kTrials; ++epoch) {
    const RoundTrip trip(kCpuLowBit, x, format, {.seed = 5, .epoch = epoch});
    for (const size_t i : largest) {
      const float scale = trip.ScaleAt(i, format);
      EXPECT_LE(x[i], 127 * scale) << i;
      EXPECT_GT(x[i], 127 * std::bit_cast<float>(std::bit_cast<uint32_t>(scale) - 0x10000)) << i;
      // In units of the element, so that all blocks weigh the same.
      bias.Add(trip.values[i] / x[i] - 1, 1, scale / x[i]);
      rounding += 0x1p-22;
    }
  }
  EXPECT_LT(bias.InErrors(rounding), 4);
}

// Nothing is too small for a scale: the smallest number is sent as one unit in one call of
// millions.
TEST_P(LowBitOracleTest, StochasticRoundingKeepsSubnormals) {
  const LowBitFormat format = {LowBitCodec::kInt8Stochastic, 32};
  for (const float largest : {0x1p-149f, 0x1p-133f, 0x1p-126f, 126 * 0x1p-126f}) {
    for (const LowBitKernels& kernels : {kReferenceLowBit, kCpuLowBit}) {
      std::vector<float> x(64);
      x[5] = -largest;
      const RoundTrip trip(kernels, x, format, {.seed = 1});
      EXPECT_EQ(trip.scales[0], 0x0080) << largest;
      EXPECT_EQ(trip.scales[1], 0);
      const float down = std::floor(x[5] * 0x1p126f);
      const float units = trip.values[5] * 0x1p126f;
      EXPECT_TRUE(units == down || units == down + 1) << largest;
      std::vector<float> others = trip.values;
      others[5] = 0;
      EXPECT_EQ(others, std::vector<float>(64)) << largest;
    }
  }
}

// The ranges that onebit.h gives: rows whose magnitudes differ, heavy tails, and normal numbers.
TEST_P(LowBitOracleTest, SignalToNoiseIsWhatTheHeaderSays) {
  constexpr size_t kCount = size_t{1} << 18;
  struct Range {
    LowBitCodec codec;
    size_t block;
    double low, high;
  };
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> heavy(3);
  std::vector<std::vector<float>> inputs(3, std::vector<float>(kCount));
  float row = 1;
  for (size_t i = 0; i < kCount; ++i) {
    if (i % 64 == 0) row = std::exp(normal(random));
    inputs[0][i] = row * normal(random);
    inputs[1][i] = heavy(random);
    inputs[2][i] = normal(random);
  }
  for (const Range& range : {Range{LowBitCodec::kFp4, 128, 16, 19},
                             {LowBitCodec::kInt8, 256, 35, 43},
                             {LowBitCodec::kUint8, 256, 38, 44},
                             {LowBitCodec::kInt2, 4096, 3, 9},
                             {LowBitCodec::kInt8Stochastic, 256, 32, 40}}) {
    double least = 1e9, most = 0;
    for (const std::vector<float>& x : inputs) {
      const RoundTrip trip(kCpuLowBit, x, {range.codec, range.block}, {.seed = 1});
      double signal = 0, noise = 0;
      for (size_t i = 0; i < kCount; ++i) {
        signal += std::pow(static_cast<double>(x[i]), 2);
        noise += std::pow(static_cast<double>(x[i]) - static_cast<double>(trip.values[i]), 2);
      }
      least = std::min(least, 10 * std::log10(signal / noise));
      most = std::max(most, 10 * std::log10(signal / noise));
    }
    EXPECT_NEAR(least, range.low, 0.7) << static_cast<int>(range.codec);
    EXPECT_NEAR(most, range.high, 0.7) << static_cast<int>(range.codec);
  }
}

ONEBIT_TEST_EACH_TARGET(LowBitOracleTest);

TEST(PhiloxTest, GivesKnownAnswers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  const reference::PhiloxWords zeros = reference::Philox({{0, 0, 0, 0}}, 0, 0);
  const reference::PhiloxWords ones =
      reference::Philox({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes);
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(zeros.word[k], kGoldenPhiloxZeros[k]);
    EXPECT_EQ(ones.word[k], kGoldenPhiloxOnes[k]);
  }
  for (const GoldenDraw& draw : kGoldenDrawn) {
    EXPECT_EQ(reference::DrawOf(kGoldenDraws, draw.index), draw.random) << draw.index;
  }
}

TEST(LowBitCodesTest, ValuesAreThoseOfTheFormat) {
  const float fp4[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(reference::UnitsOfCode(LowBitCodec::kFp4, code), fp4[code]);
    EXPECT_EQ(reference::UnitsOfCode(LowBitCodec::kFp4, code | 8), -fp4[code]);
    EXPECT_EQ(reference::Fp4Code(fp4[code]), code);
    EXPECT_EQ(reference::Fp4Code(-fp4[code]), code == 0 ? 0 : code | 8);
  }
  const float int2[] = {.5f, 1.5f, -1.5f, -.5f};
  for (uint32_t code = 0; code < 4; ++code) {
    EXPECT_EQ(reference::UnitsOfCode(LowBitCodec::kInt2, code), int2[code]);
  }
  for (int q = -127; q <= 127; ++q) {
    EXPECT_EQ(reference::UnitsOfCode(LowBitCodec::kInt8, static_cast<uint8_t>(q)), q);
  }
}

// Halfway between two values of fp4 the larger magnitude is taken.
TEST(LowBitCodesTest, TiesOfFp4GoAwayFromZero) {
  const float thresholds[] = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  for (uint32_t index = 0; index < 7; ++index) {
    EXPECT_EQ(reference::Fp4Code(thresholds[index]), index + 1);
    EXPECT_EQ(reference::Fp4Code(-thresholds[index]), (index + 1) | 8);
    EXPECT_EQ(reference::Fp4Code(std::nextafter(thresholds[index], 0.0f)), index);
  }
}

// ---- Scales

reference::LowBitScale ScaleOfRange(float minimum, float maximum) {
  return reference::ScaleOfBlock(LowBitCodec::kUint8,
                                 {.element_count = 2, .minimum = minimum, .maximum = maximum});
}

TEST(LowBitScaleTest, ZeroMinimumIsPositive) {
  EXPECT_EQ(ScaleOfRange(-0.0f, 1).minimum_bits, 0);
  EXPECT_EQ(ScaleOfRange(-1e-44f, 1).minimum_bits, 0);  // rounds to -0
}

// A minimum that rounds up beyond the maximum leaves nothing to scale.
TEST(LowBitScaleTest, EqualNumbersHaveNoScale) {
  const reference::LowBitScale block = ScaleOfRange(1.0078f, 1.0078f);
  EXPECT_GT(block.minimum, 1.0078f);
  EXPECT_EQ(block.scale_bits, 0);
  EXPECT_EQ(block.inverse, 0);
}

TEST(LowBitScaleTest, SubnormalScaleIsZero) {
  for (const float scale : {0x1p-126f, 0x1.fcp-127f, 0x1.fep-127f, 0x1.fffffcp-127f}) {
    const reference::LowBitScale block = reference::ScaleOfBlock(
        LowBitCodec::kInt2,
        {.element_count = 1, .sum_of_squares = std::pow(static_cast<double>(scale), 2)});
    // The last two are rounded up to the smallest scale.
    EXPECT_EQ(block.scale, scale == 0x1.fcp-127f ? 0 : 0x1p-126f) << scale;
  }
}

reference::LowBitScale ScaleOfLargest(LowBitCodec codec, float largest) {
  return reference::ScaleOfBlock(codec, {.element_count = 1, .largest_magnitude = largest});
}

// A scale that fits is not changed, and the next number has the next scale.
TEST(LowBitScaleTest, StochasticRoundingRoundsItsScaleUp) {
  constexpr LowBitCodec kCodec = LowBitCodec::kInt8Stochastic;
  for (uint32_t bits = 0x0080; bits < 0x7E80; ++bits) {
    const float scale = reference::FloatOfBf16(static_cast<uint16_t>(bits));
    const float largest = 127 * scale;  // exact
    if (largest >= reference::kLowBitLimit) break;
    EXPECT_EQ(ScaleOfLargest(kCodec, largest).scale_bits, bits);
    EXPECT_EQ(ScaleOfLargest(kCodec, std::nextafter(largest, 0x1p127f)).scale_bits, bits + 1);
  }
  EXPECT_EQ(ScaleOfLargest(LowBitCodec::kInt8, std::nextafter(127.0f, 128.0f)).scale, 1);
}

TEST(LowBitScaleTest, RoundingUpStaysInRange) {
  constexpr LowBitCodec kCodec = LowBitCodec::kInt8Stochastic;
  const reference::LowBitScale most = ScaleOfLargest(kCodec, std::nextafter(0x1p127f, 0.0f));
  EXPECT_TRUE(most.is_finite);
  EXPECT_EQ(most.scale, 0x1.04p120f);
  EXPECT_EQ(ScaleOfLargest(kCodec, 0).scale_bits, 0);
  EXPECT_EQ(ScaleOfLargest(kCodec, 0).inverse, 0);
  for (const float largest : {0x1p-149f, 0x1p-126f, 127 * 0x1p-126f}) {
    EXPECT_EQ(ScaleOfLargest(kCodec, largest).scale, 0x1p-126f) << largest;
    EXPECT_EQ(ScaleOfLargest(kCodec, largest).inverse, 0x1p126f) << largest;
  }
}

TEST(LowBitScaleTest, RangeBeyondFp32IsNotFinite) {
  const float largest = std::nextafter(0x1p127f, 0.0f);
  const reference::LowBitScale block = ScaleOfRange(-largest, largest);
  EXPECT_FALSE(block.is_finite);
  EXPECT_EQ(block.scale_bits, 0x7FC0);
  EXPECT_EQ(block.minimum_bits, 0);
}

}  // namespace
}  // namespace onebit::kernels
