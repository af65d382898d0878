// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets against numbers of another implementation, and against the bounds on their
// errors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
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

// Over many calls the mean of a stochastically rounded number is the number.
TEST_P(LowBitOracleTest, StochasticRoundingHasNoBias) {
  constexpr uint32_t kTrials = 2000;
  const std::vector<float> x = GoldenNumbers();
  const LowBitFormat format = {LowBitCodec::kInt8Stochastic, kGoldenBlock};
  std::vector<double> bias(x.size());
  RoundTrip trip(kCpuLowBit, x, format, {});
  for (uint32_t epoch = 0; epoch < kTrials; ++epoch) {
    trip = RoundTrip(kCpuLowBit, x, format, {.seed = 5, .epoch = epoch});
    for (size_t i = 0; i < x.size(); ++i) {
      bias[i] += static_cast<double>(trip.values[i] - x[i]) / kTrials;
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    // The largest number of a block may be beyond the last step.
    const float scale = trip.ScaleAt(i, format);
    if (std::abs(x[i]) > 127 * scale) continue;
    EXPECT_LT(std::abs(bias[i]), 0.05 * static_cast<double>(scale)) << i;
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

TEST(LowBitScaleTest, RangeBeyondFp32IsNotFinite) {
  const float largest = std::nextafter(0x1p127f, 0.0f);
  const reference::LowBitScale block = ScaleOfRange(-largest, largest);
  EXPECT_FALSE(block.is_finite);
  EXPECT_EQ(block.scale_bits, 0x7FC0);
  EXPECT_EQ(block.minimum_bits, 0);
}

}  // namespace
}  // namespace onebit::kernels
