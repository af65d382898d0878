// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packets of several ranks that are summed, and how a sum ends. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_RANKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_RANKS_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_RANKS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_RANKS_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

// Targets that sum in integers where that is exact.
#ifndef ONEBIT_SUMS_EXACTLY
#define ONEBIT_SUMS_EXACTLY (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#endif

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Elements that are summed at once. Their sums take a quarter of the first-level cache.
inline constexpr size_t kMaxSumCount = 2048;
// Ranks whose scales stay in registers; partial sums of other ranks stay in the first-level cache.
inline constexpr size_t kMaxRanksAtOnce = 8;

// Ranks that are summed at once, from a first element on, which begins a block or continues the
// only one. Pointers are not copied: what a function stores and the next one loads in other sizes
// would wait for all stores before.
struct RanksAtOnce {
  const LowBitPacketView* packets;
  size_t first_block;  // of each packet
  size_t first_byte;   // of its codes
  size_t count;
  size_t block;  // elements from the first scale to the next
  // The smallest scale of all ranks, for each block; null if sums may be inexact.
  const uint16_t* smallest_scales;

  HWY_INLINE const uint16_t* Scales(size_t k) const { return packets[k].scales + first_block; }
  HWY_INLINE const uint8_t* Codes(size_t k) const { return packets[k].codes + first_byte; }
};

#if ONEBIT_SUMS_EXACTLY
// The ranks of a block whose sums are exact in any order (low_bit_exact_sum-inl.h).
template <LowBitCodec kCodec, size_t kRanks>
class ExactRanks;

// The exponent of a scale, which is positive and normal.
HWY_INLINE uint32_t ExponentOf(uint32_t scale) { return scale >> 7; }

// The scale of rank `k` in units in which the smallest scale of the block is 128 to 255.
HWY_INLINE uint32_t ScaleInUnits(const RanksAtOnce& ranks, size_t k, size_t index) {
  const uint32_t scale = ranks.Scales(k)[index];
  return ((scale & 0x7F) | 0x80) << (ExponentOf(scale) - ExponentOf(ranks.smallest_scales[index]));
}

// The scales of two ranks, the second in the upper half, where it is 0 if there is none.
template <size_t kRanks>
HWY_INLINE uint32_t ScalesOfPair(const RanksAtOnce& ranks, size_t pair, size_t index) {
  const uint32_t scale = ScaleInUnits(ranks, 2 * pair, index);
  if (2 * pair + 1 == kRanks) return scale;
  return scale | ScaleInUnits(ranks, 2 * pair + 1, index) << 16;
}

// kLargestValue, kUnitExponent and kMaxScale of a codec, as low_bit_exact_sum-inl.h has them.
template <LowBitCodec kCodec>
struct ExactUnits;

// The values of all codes, times a power of 2, as bytes, and the sums of four ranks in 16 bits.
template <>
struct ExactUnits<LowBitCodec::kFp4> {
  static constexpr uint32_t kLargestValue = 12;
  static constexpr int kUnitExponent = -1;
  static constexpr uint32_t kMaxScale = 32767 / (4 * kLargestValue);

  // The bytes repeat every 16.
  template <size_t kCount>
  static constexpr std::array<int8_t, kCount> ValuesTimes(int factor) {
    constexpr int kMagnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
    std::array<int8_t, kCount> values = {};
    for (size_t i = 0; i < kCount; ++i) {
      const int magnitude = kMagnitudes[i % 8] * factor;
      values[i] = static_cast<int8_t>(i % 16 < 8 ? magnitude : -magnitude);
    }
    return values;
  }
  // By the difference of a scale's exponent and the smallest one.
  template <size_t kCount>
  static constexpr std::array<std::array<int8_t, kCount>, 3> Values() {
    static_assert(kMaxScale < 128 << 3);
    return {ValuesTimes<kCount>(1), ValuesTimes<kCount>(2), ValuesTimes<kCount>(4)};
  }
};

// The sums of all ranks in 16 bits, in the upper half of 32.
template <>
struct ExactUnits<LowBitCodec::kInt2> {
  static constexpr uint32_t kLargestValue = 3;
  static constexpr int kUnitExponent = -1 - 16;
  static constexpr uint32_t kMaxScale = 32767 / (kMaxRanksAtOnce * kLargestValue);

  // The values of the first (shift 0) or the second rank (2) for the merged codes of both.
  template <size_t kCount>
  static constexpr std::array<uint16_t, kCount> ValuesOf(size_t shift) {
    constexpr int kOfCode[] = {1, 3, -3, -1};
    std::array<uint16_t, kCount> values = {};
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<uint16_t>(kOfCode[i >> shift & 3]);
    return values;
  }
};

// The values times 2^8 in 16 bits, and the sums of all ranks in 32.
template <>
struct ExactUnits<LowBitCodec::kInt8> {
  static constexpr uint32_t kLargestValue = 128;
  static constexpr int kUnitExponent = -8;
  static constexpr uint32_t kMaxScale =
      0x7FFFFFFF / (kMaxRanksAtOnce * kLargestValue << -kUnitExponent);
};
#endif

// The last step of a sum, and where it goes.
struct SumEnd {
  enum Step { kNothing, kPartial, kMultiply, kDivide };
  Step step = kNothing;
  float factor = 1;
  bool is_streamed = false;
};

// Fetches ahead of a byte of the codes, once per line as the byte advances by kStep. The address
// may be beyond the codes.
template <size_t kStep>
HWY_INLINE void FetchCodesAhead(const uint8_t* codes, size_t byte) {
  constexpr size_t kAheadBytes = 1024;
  if (kStep < kLineBytes && byte % kLineBytes != 0) return;
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(codes) + byte + kAheadBytes;
  hwy::Prefetch(reinterpret_cast<const char*>(ahead));
}

// All packets of a piece.
struct LowBitPackets {
  const LowBitPacketView* packets;
  size_t ranks;
  size_t count;
  size_t block;
  SumEnd end;

  LowBitPackets(const LowBitReduceInput& in, LowBitFormat format)
      : packets(in.packets), ranks(in.ranks), count(in.count), block(format.block) {
    if (in.is_sum || ranks == 1) return;
    const float divisor = static_cast<float>(ranks);
    const bool is_power_of_2 = (ranks & (ranks - 1)) == 0;  // its inverse is exact
    end.step = is_power_of_2 ? SumEnd::kMultiply : SumEnd::kDivide;
    end.factor = is_power_of_2 ? 1 / divisor : divisor;
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
