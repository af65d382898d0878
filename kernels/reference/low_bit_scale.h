// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The scale and the minimum of a block of a low-bit codec, from the block's statistics.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/low_bit.h"
#include "kernels/reference/float_formats.h"

namespace onebit::kernels::reference {

inline constexpr uint16_t kNanScale = 0x7FC0;
// The first magnitude that no element of a block may have.
inline constexpr float kLowBitLimit = 0x1p127f;
inline constexpr float kMinLowBitScale = 0x1p-126f;
inline constexpr float kMaxLowBitScale = 0x1p126f;

// A codec's scale depends on these, over the elements that take part; each codec uses some of them.
struct LowBitStatistics {
  bool is_in_range = true;  // every magnitude is below kLowBitLimit
  size_t element_count = 0;
  float largest_magnitude = 0;  // kFp4, kInt8, kInt8Stochastic
  float minimum = 0;            // kUint8; both 0 if no element takes part
  float maximum = 0;
  double sum_of_squares = 0;  // kInt2
};

// Scale and minimum as they are sent, and 1 / scale; the inverse of a scale of 0 is 0, which gives
// every element the code 0.
struct LowBitScale {
  uint16_t scale_bits = 0;
  uint16_t minimum_bits = 0;
  float scale = 0;
  float minimum = 0;
  float inverse = 0;
  bool is_finite = true;
};

// The unit that the largest magnitude becomes, for codecs whose scale depends on it alone.
ONEBIT_HOST_DEVICE constexpr float LargestUnit(LowBitCodec codec) {
  return codec == LowBitCodec::kFp4 ? 6 : 127;
}

// With a scale that is rounded up, no element is beyond the largest code, where it would be cut
// off: the mean of random roundings is the element, that of the largest one included.
ONEBIT_HOST_DEVICE constexpr bool RoundsScaleUp(LowBitCodec codec) {
  return codec == LowBitCodec::kInt8Stochastic;
}

// The exact scale, before it is rounded; `minimum` is as sent. A scale that is rounded up is at
// least the smallest one that there is, unless all elements are 0.
ONEBIT_HOST_DEVICE inline float ExactLowBitScale(LowBitCodec codec, const LowBitStatistics& block,
                                                 float minimum) {
  switch (codec) {
    case LowBitCodec::kFp4:
    case LowBitCodec::kInt8:
      return block.largest_magnitude / LargestUnit(codec);
    case LowBitCodec::kInt8Stochastic: {
      const float scale = block.largest_magnitude / LargestUnit(codec);
      const bool is_too_small = block.largest_magnitude > 0 && scale < kMinLowBitScale;
      return is_too_small ? kMinLowBitScale : scale;
    }
    case LowBitCodec::kUint8:
      return (block.maximum - minimum) / 255;
    case LowBitCodec::kInt2:
      if (block.element_count == 0) return 0;
      return static_cast<float>(
          std::sqrt(block.sum_of_squares / static_cast<double>(block.element_count)));
  }
  return 0;
}

// Rounds an exact scale, which is neither negative nor NaN.
ONEBIT_HOST_DEVICE inline uint16_t ScaleBitsOf(LowBitCodec codec, float exact) {
  if (!RoundsScaleUp(codec)) return Bf16OfFloat(exact);
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(exact) + 0xFFFFu) >> 16);
}

ONEBIT_HOST_DEVICE inline LowBitScale ScaleOfBlock(LowBitCodec codec,
                                                   const LowBitStatistics& block) {
  LowBitScale sent;
  if (block.is_in_range) {
    if (HasMinimum(codec)) sent.minimum_bits = Bf16OfFloat(block.minimum);
    if (sent.minimum_bits == 0x8000) sent.minimum_bits = 0;  // -0
    sent.minimum = FloatOfBf16(sent.minimum_bits);
    sent.scale_bits = ScaleBitsOf(codec, ExactLowBitScale(codec, block, sent.minimum));
    sent.scale = FloatOfBf16(sent.scale_bits);
    sent.is_finite = sent.scale <= kMaxLowBitScale;
  } else {
    sent.is_finite = false;
  }
  if (!sent.is_finite) {
    const float nan = FloatOfBf16(kNanScale);
    return {.scale_bits = kNanScale, .minimum_bits = 0, .scale = nan, .is_finite = false};
  }
  if (sent.scale < kMinLowBitScale) {
    sent.scale_bits = 0;
    sent.scale = 0;
  } else {
    sent.inverse = 1 / sent.scale;
  }
  return sent;
}

// True for the scales of blocks that are not finite.
ONEBIT_HOST_DEVICE inline bool IsNonfiniteScale(uint16_t scale_bits) {
  return (scale_bits & 0x7F80) == 0x7F80;
}

}  // namespace onebit::kernels::reference
