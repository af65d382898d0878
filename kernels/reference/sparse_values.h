// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The two magnitudes that stand for the values of a sparse block, and bits of packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/reference/float_formats.h"
#include "kernels/sparse.h"

namespace onebit::kernels::reference {

// The first magnitude that no element of a block may have.
inline constexpr float kSparseLimit = 0x1p127f;
inline constexpr uint16_t kNanMagnitude = 0x7FC0;
inline constexpr uint32_t kNanValue = 0x7FC0'0000;

// Bits of a value's code.
inline constexpr unsigned kHighCode = 1;
inline constexpr unsigned kNegativeCode = 2;

struct TwoMagnitudes {
  uint16_t high = 0;  // bf16
  uint16_t low = 0;
  float threshold = 0;  // values whose magnitude is above it are high
};

// Sums of the magnitudes above a threshold and of the others, by the rule of block sums.
struct SplitSum {
  double high = 0;
  double low = 0;
  size_t high_count = 0;
};

// The threshold is the mean of all `count` magnitudes, and then twice the middle between the mean
// of those above it and the mean of the others. split_at(threshold) returns their SplitSum.
//
// The second threshold may lie above all magnitudes, if both means round to one number. No
// magnitude is then high, and the mean of all stands for those above half of it.
template <class SplitAt>
TwoMagnitudes FindMagnitudes(size_t count, const SplitAt& split_at) {
  const auto mean = [](double sum, size_t n) {
    return n == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(n));
  };
  TwoMagnitudes result;
  result.threshold = mean(split_at(std::numeric_limits<float>::infinity()).low, count);
  for (int round = 0; round < 2; ++round) {
    const SplitSum split = split_at(result.threshold);
    result.high = Bf16OfFloat(mean(split.high, split.high_count));
    result.low = Bf16OfFloat(mean(split.low, count - split.high_count));
    // The sum of two magnitudes of 2^127 would be infinite.
    result.threshold = FloatOfBf16(result.high) * 0.5f + FloatOfBf16(result.low) * 0.5f;
  }
  if (result.high == 0) result.high = result.low;
  return result;
}

// The values of the four codes.
struct CodeValues {
  float value[4];

  CodeValues(uint16_t high_bits, uint16_t low_bits) {
    const float high = FloatOfBf16(high_bits), low = FloatOfBf16(low_bits);
    value[0] = low;
    value[kHighCode] = high;
    value[kNegativeCode] = -low;
    value[kNegativeCode | kHighCode] = -high;
  }
};

inline unsigned CodeOf(float value, float threshold) {
  const float magnitude = value < 0 ? -value : value;
  return (magnitude > threshold ? kHighCode : 0) | (value < 0 ? kNegativeCode : 0);
}

// Index number `i` of a packet.
inline size_t IndexAt(const uint8_t* indices, size_t i) {
  const uint8_t* pair = indices + i / 2 * 3;
  return i % 2 == 0 ? size_t{pair[0]} | (pair[1] & 0xFu) << 8
                    : size_t{pair[1]} >> 4 | size_t{pair[2]} << 4;
}

// Code number `i` of a packet.
inline unsigned SparseCodeAt(const uint8_t* codes, size_t i) {
  return static_cast<unsigned>(codes[i / 4] >> (i % 4 * 2)) & 3u;
}

// Writes numbers of a few bits one behind the other, and no byte beyond the last of them.
class BitWriter {
 public:
  explicit BitWriter(uint8_t* out) : out_(out) {}

  // At most 32 bits.
  void Write(uint32_t number, unsigned bits) {
    word_ |= uint64_t{number} << used_;
    used_ += bits;
    if (used_ < 32) return;
    std::memcpy(out_, &word_, sizeof(uint32_t));
    out_ += sizeof(uint32_t);
    word_ >>= 32;
    used_ -= 32;
  }
  // Writes the last bytes, whose unused bits are 0.
  void Finish() {
    if (used_ != 0) std::memcpy(out_, &word_, (used_ + 7) / 8);
  }

 private:
  uint8_t* out_;
  uint64_t word_ = 0;
  unsigned used_ = 0;
};

}  // namespace onebit::kernels::reference
