// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Gradients in types other than the model's.
#include "perf/train_text/gradient_buffer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace onebit::train {
namespace {

/**
 * Returns the bits of `value` in 16-bit type `type`, checked at every place of a buffer of several
 * vectors.
 */
uint16_t ConvertedBits(onebitDataType_t type, double loss_scale, float value) {
  constexpr size_t kCount = 70;
  GradientBuffer gradient(kCount, type, loss_scale);
  std::fill(gradient.values().begin(), gradient.values().end(), value);
  std::vector<uint16_t> bits(kCount);
  std::memcpy(bits.data(), gradient.Converted(), kCount * sizeof(uint16_t));
  EXPECT_EQ(std::count(bits.begin(), bits.end(), bits[0]), static_cast<ptrdiff_t>(kCount));
  return bits[0];
}

TEST(GradientBufferTest, Fp32IsHandedOverAsItIs) {
  GradientBuffer gradient(3, onebitFloat32, 1);
  EXPECT_EQ(gradient.Converted(), gradient.values().data());
}

TEST(GradientBufferTest, Fp16RoundsToNearestEven) {
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1, 1.0F), 0x3c00);
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1, 1.0F + 0x1p-11F), 0x3c00);
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1, 1.0F + 0x3p-11F), 0x3c02);
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1, -0x1p-24F), 0x8001);  // the smallest
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1, 1e6F), 0x7c00);       // infinity
}

TEST(GradientBufferTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(ConvertedBits(onebitBfloat16, 1, 1.0F), 0x3f80);
  EXPECT_EQ(ConvertedBits(onebitBfloat16, 1, 1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(ConvertedBits(onebitBfloat16, 1, 1.0F + 0x3p-8F), 0x3f82);
}

TEST(GradientBufferTest, TheLossScaleComesBeforeTheRounding) {
  EXPECT_EQ(ConvertedBits(onebitFloat16, 1024, 0x1p-34F), 0x0001);
}

}  // namespace
}  // namespace onebit::train
