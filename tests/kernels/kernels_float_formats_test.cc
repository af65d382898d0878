// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16: the oracle is compared with the definition of the formats, instruction sets with
// the oracle, over all patterns and all rounding ties.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/reference/float_formats.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/test_data.h"

namespace onebit::kernels {
namespace {

// Computes a 16-bit number from its fields, without any bit trick.
double ValueOf(uint16_t half, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (half & 0x7FFF) >> mantissa_bits;
  const int mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, exponent - bias));
}

constexpr int kFp16ExponentBits = 5;
constexpr int kBf16ExponentBits = 8;

std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

// Numbers around every representable number and every tie between two of them, and random ones.
std::vector<float> DemotionInputs() {
  std::vector<float> inputs;
  for (const uint16_t half : AllPatterns()) {
    const float fp16 = reference::FloatOfFp16(half);
    const uint32_t bf16_bits = uint32_t{half} << 16;
    for (const uint32_t base : {std::bit_cast<uint32_t>(fp16), bf16_bits}) {
      for (const uint32_t step : {0x1000u, 0x8000u}) {  // half a unit of fp16, of bf16
        for (const int delta : {-1, 0, 1}) {
          inputs.push_back(std::bit_cast<float>(base + static_cast<uint32_t>(delta)));
          inputs.push_back(std::bit_cast<float>(base + step + static_cast<uint32_t>(delta)));
        }
      }
    }
    if ((half & 0x7FFF) < 0x400) {  // ties between subnormal fp16
      const float tie = std::abs(fp16) + 0x1p-25f;
      for (const int delta : {-1, 0, 1}) {
        inputs.push_back(
            std::bit_cast<float>(std::bit_cast<uint32_t>(tie) + static_cast<uint32_t>(delta)));
        inputs.push_back(-inputs.back());
      }
    }
  }
  Random random(6);
  for (int i = 0; i < 200000; ++i)
    inputs.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  return inputs;
}

// Finds the nearest representable number by search; ties go to the even pattern.
uint16_t NearestByDefinition(float value, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  int low = 0;
  int high = infinity;  // stands for the next power of two
  const auto value_of = [&](int half) {
    return half == infinity
               ? 2 * ValueOf(static_cast<uint16_t>(infinity - (1 << mantissa_bits)), exponent_bits)
               : ValueOf(static_cast<uint16_t>(half), exponent_bits);
  };
  if (magnitude >= value_of(high)) return sign | infinity;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (value_of(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low);
  const double above = value_of(high) - magnitude;
  const int nearest = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<uint16_t>(sign | nearest);
}

TEST(ReferenceFormatsTest, WidenEveryPattern) {
  for (const uint16_t half : AllPatterns()) {
    const double fp16 = ValueOf(half, kFp16ExponentBits);
    const double bf16 = ValueOf(half, kBf16ExponentBits);
    if (std::isnan(fp16)) {
      EXPECT_TRUE(std::isnan(reference::FloatOfFp16(half)));
    } else {
      EXPECT_EQ(reference::FloatOfFp16(half), fp16);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(reference::FloatOfBf16(half)));
    } else {
      EXPECT_EQ(reference::FloatOfBf16(half), bf16);
    }
  }
}

TEST(ReferenceFormatsTest, RoundToNearestEven) {
  for (const float value : DemotionInputs()) {
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(reference::FloatOfFp16(reference::Fp16OfFloat(value))));
      EXPECT_TRUE(std::isnan(reference::FloatOfBf16(reference::Bf16OfFloat(value))));
      continue;
    }
    ASSERT_EQ(reference::Fp16OfFloat(value), NearestByDefinition(value, kFp16ExponentBits))
        << value;
    ASSERT_EQ(reference::Bf16OfFloat(value), NearestByDefinition(value, kBf16ExponentBits))
        << value;
  }
}

class FormatsTest : public EachTarget {};

TEST_P(FormatsTest, WidensEveryPattern) {
  const std::vector<uint16_t> patterns = AllPatterns();
  std::vector<float> actual(patterns.size());
  // 1 * m + 1 * (pattern * 1) with m = -0 is the pattern itself, the sign of a zero included.
  const std::vector<float> m(patterns.size(), -0.0f);
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    cpu::LocalMomentum(m.data(), patterns.data(), type, 1, 1, 1, nullptr, patterns.size(),
                       actual.data());
    for (const uint16_t half : patterns) {
      const float expected =
          type == DataType::kF16 ? reference::FloatOfFp16(half) : reference::FloatOfBf16(half);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual[half])) << half;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(actual[half]), std::bit_cast<uint32_t>(expected)) << half;
      }
    }
  }
}

// A dense reduction of one rank is a conversion to fp32 and back.
TEST_P(FormatsTest, NarrowingUndoesWidening) {
  const std::vector<uint16_t> patterns = AllPatterns();
  std::vector<uint16_t> actual(patterns.size());
  const void* const inputs[] = {patterns.data()};
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    cpu::DenseReduce(inputs, 1, patterns.size(), type, DenseOp::kSum, actual.data());
    for (const uint16_t half : patterns) {
      const bool is_nan = std::isnan(type == DataType::kF16 ? reference::FloatOfFp16(half)
                                                            : reference::FloatOfBf16(half));
      const uint16_t quiet = type == DataType::kF16 ? 0x200 : 0x40;
      ASSERT_EQ(actual[half], is_nan ? half | quiet : half) << half;
    }
  }
}

// An update with lr 0 leaves x alone and writes its low-precision copy.
TEST_P(FormatsTest, RoundsToNearestEven) {
  std::vector<float> x = DemotionInputs();
  std::vector<float> m(x.size()), v(x.size(), 1), g(x.size());
  std::vector<uint16_t> actual(x.size());
  for (const DataType type : {DataType::kF16, DataType::kBf16}) {
    cpu::AdamFrozen({.x = x.data(),
                     .m = m.data(),
                     .v = v.data(),
                     .input = g.data(),
                     .count = x.size(),
                     .copy = actual.data(),
                     .copy_type = type});
    for (size_t i = 0; i < x.size(); ++i) {
      const uint16_t expected =
          type == DataType::kF16 ? reference::Fp16OfFloat(x[i]) : reference::Bf16OfFloat(x[i]);
      ASSERT_EQ(actual[i], expected) << x[i];
    }
  }
}

ONEBIT_TEST_EACH_TARGET(FormatsTest);

}  // namespace
}  // namespace onebit::kernels
