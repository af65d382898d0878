// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums of low-bit packets in integers. Per-target header.
//
// A scale is a mantissa of 8 bits times a power of 2, and a code's value is a small multiple of the
// scale or of half of it. If the scales of a block differ little between ranks, all values are
// integers in units of the same power of 2, and so small that every partial sum is below 2^24. fp32
// represents these sums exactly: additions in any order have the bits of those in rank order, and
// integers of 16 bits take fewer operations. Only a sum of values that are all -0 differs: it is
// left to the general way, like every block that does not meet the conditions.
//
// ExactRanks<codec, ranks> has
//   kStep                     elements that are summed at once; their codes fill whole vectors
//   kMaxScale                 largest scale, in units in which the smallest one of the block is
//                             128 to 255, for which no integer overflows
//   kLargestValue             largest magnitude of a code's value, in units of which the sums are
//                             multiples before they are moved up
//   kUnitExponent             one as an integer is 2 to this power, times the unit of scales
//   ExactRanks(ranks, index)  for a block
//   Sum(codes, i, emit)       elements [i, i + kStep): calls emit(j, near, far, sums), where
//                             sums[2 * a + b] are those of elements i + j + a * far + b * near, ...
//                             as 32-bit integers
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_exact_256-inl.h"
#include "kernels/cpu/low_bit_exact_512-inl.h"
#include "kernels/cpu/low_bit_ranks-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <LowBitCodec kCodec>
inline constexpr bool kHasExactSum = ONEBIT_SUMS_EXACTLY &&
                                     (kCodec == LowBitCodec::kFp4 || kCodec == LowBitCodec::kInt8 ||
                                      kCodec == LowBitCodec::kInt2);

// One rank is decoded as it is.
inline constexpr size_t kMinExactRanks = 2;

#if ONEBIT_SUMS_EXACTLY

// ---- All codecs

// Blocks of a part, the first in the lowest bit. Only they have an entry in smallest_scales.
struct ExactBlocks {
  static constexpr size_t kMaxBlocks = 32;
  static constexpr size_t kMinBlock = kMaxSumCount / kMaxBlocks;
  uint32_t bits = 0;
  alignas(64) uint16_t smallest_scales[kMaxBlocks];
};

// True if one of the codes is -0. The bytes are a multiple of a vector.
inline bool HasNegativeZero(const uint8_t* fp4_codes, size_t bytes) {
  // The lowest four bits that are 0 in `other` become 1 in the difference's highest bit.
  const hn::ScalableTag<uint64_t> d;
  const auto highest = hn::Set(d, 0x8888888888888888u);
  const auto lowest = hn::Set(d, 0x1111111111111111u);
  auto found = hn::Zero(d);
  for (size_t i = 0; i < bytes; i += hn::Lanes(d) * sizeof(uint64_t)) {
    const auto codes = hn::BitCast(d, hn::LoadU(hn::ScalableTag<uint8_t>(), fp4_codes + i));
    const auto other = hn::Xor(codes, highest);
    found = hn::Or(found, hn::AndNot(other, hn::Sub(other, lowest)));
  }
  return !hn::AllTrue(d, hn::Eq(hn::And(found, highest), hn::Zero(d)));
}

// Loads `count` scales, or as many as a vector has; others may be anything. `readable` of them can
// be read.
HWY_INLINE auto LoadScales(const uint16_t* scales, size_t count, size_t readable) {
  const hn::ScalableTag<uint16_t> d;
  if (HWY_LIKELY(readable >= hn::Lanes(d))) return hn::LoadU(d, scales);
  alignas(64) uint16_t copy[hn::MaxLanes(hn::ScalableTag<uint16_t>())] = {};
  memcpy(copy, scales, HWY_MIN(count, readable) * sizeof(copy[0]));
  return hn::Load(d, copy);
}

// Finds the blocks of elements [begin, begin + count), a part or the beginning of one, whose sums
// are exact in any order.
template <LowBitCodec kCodec>
HWY_INLINE void FindExactBlocks(const LowBitPackets& in, size_t begin, size_t count,
                                ExactBlocks& exact) {
  using Ranks = ExactRanks<kCodec, kMaxRanksAtOnce>;
  // Results are neither subnormal nor infinite.
  constexpr uint16_t kMinBits = (127 - 63) << 7, kMaxBits = (127 + 100) << 7;
  const size_t max_scale =
      HWY_MIN(Ranks::kMaxScale, (size_t{1} << 24) / (Ranks::kLargestValue * in.ranks));
  if (max_scale < 128) return;
  if constexpr (kCodec == LowBitCodec::kFp4) {
    // No other value of the first rank is -0, so no sum is.
    if (HasNegativeZero(in.packets[0].codes + begin / 2, count / 2)) return;
  }
  // Bits of positive numbers order like these, and negative ones are above. The distance from 128
  // to the largest scale in units follows from bits, too.
  const uint32_t max_bits = std::bit_cast<uint32_t>(static_cast<float>(max_scale)) >> 16;
  constexpr uint32_t k128 = (127 + 7) << 7;
  const hn::ScalableTag<uint16_t> d;
  constexpr size_t kScales = hn::MaxLanes(hn::ScalableTag<uint16_t>());
  static_assert(ExactBlocks::kMaxBlocks % kScales == 0);
  const size_t first_block = begin / in.block;
  const size_t block_count = BlockCount(count, in.block);
  for (size_t k = 0; k < block_count; k += kScales) {
    auto smallest = hn::Set(d, 0xFFFF), largest = hn::Zero(d);
    for (size_t rank = 0; rank < in.ranks; ++rank) {
      const size_t block = first_block + k;
      const auto scales = LoadScales(in.packets[rank].scales + block, block_count - k,
                                     BlockCount(in.count, in.block) - block);
      smallest = hn::Min(smallest, scales);
      largest = hn::Max(largest, scales);
    }
    const auto distance = hn::Sub(largest, hn::And(smallest, hn::Set(d, 0xFF80)));
    const auto is_far = hn::Gt(distance, hn::Set(d, static_cast<uint16_t>(max_bits - k128)));
    const auto is_inexact = hn::Or(is_far, hn::Or(hn::Lt(smallest, hn::Set(d, kMinBits)),
                                                  hn::Gt(largest, hn::Set(d, kMaxBits))));
    hn::Store(smallest, d, exact.smallest_scales + k);
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, is_inexact, bytes);
    uint32_t bits;
    memcpy(&bits, bytes, sizeof(bits));
    constexpr uint32_t kAll = 0xFFFFFFFFu >> (32 - kScales);
    exact.bits |= (~bits & kAll) << k;
  }
}

// Adds ranks if every block meets these conditions; the count is a multiple of kStep.
template <LowBitCodec kCodec, size_t kRanks, bool kIsFirst>
HWY_NOINLINE void AddExactly(const RanksAtOnce& ranks, const float* partial, float* to,
                             const SumEnd& end_in_memory) {
  using Ranks = ExactRanks<kCodec, kRanks>;
  using RawIntegers = decltype(hn::Vec<DI32>::raw);
  const SumEnd end = end_in_memory;
  const size_t count = ranks.count, block = ranks.block;
  const VF factor = hn::Set(kF32, end.factor);
  const uint8_t* codes[kRanks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) codes[k] = ranks.Codes(k);
  for (size_t begin = 0, index = 0; begin < count; begin += block, ++index) {
    const size_t block_end = HWY_MIN(begin + block, count);
    const Ranks block_ranks(ranks, index);
    // The bias of fp32 and of bf16 is the same.
    const uint32_t exponent =
        ExponentOf(ranks.smallest_scales[index]) - 7 + static_cast<uint32_t>(Ranks::kUnitExponent);
    float unit = std::bit_cast<float>(exponent << 23);
    if (kIsFirst && end.step == SumEnd::kMultiply) unit *= end.factor;
    const VF units = hn::Set(kF32, unit);
    for (size_t i = begin; i < block_end; i += Ranks::kStep) {
      const auto finish = [&](size_t first, size_t near, size_t far,
                              const RawIntegers(&integers)[4]) HWY_ATTR {
        // All of this is exact but the division.
        VF sum[4];
        HWY_UNROLL(4)
        for (size_t v = 0; v < 4; ++v) {
          sum[v] = hn::Mul(hn::ConvertTo(kF32, hn::Vec<DI32>{integers[v]}), units);
        }
        const auto position = [&](size_t v) { return i + first + v / 2 * far + v % 2 * near; };
        if constexpr (!kIsFirst) {
          HWY_UNROLL(4)
          for (size_t v = 0; v < 4; ++v) {
            sum[v] = hn::Add(sum[v], hn::LoadU(kF32, partial + position(v)));
          }
          if (end.step == SumEnd::kMultiply) {
            HWY_UNROLL(4)
            for (size_t v = 0; v < 4; ++v) sum[v] = hn::Mul(sum[v], factor);
          }
        }
        if (end.step == SumEnd::kDivide) {
          HWY_UNROLL(4)
          for (size_t v = 0; v < 4; ++v) sum[v] = hn::Div(sum[v], factor);
        }
        if (end.is_streamed) {
          HWY_UNROLL(4)
          for (size_t v = 0; v < 4; ++v) {
            StoreF32As<DataType::kF32, true>(sum[v], to, position(v));
          }
        } else {
          HWY_UNROLL(4)
          for (size_t v = 0; v < 4; ++v) hn::StoreU(sum[v], kF32, to + position(v));
        }
      };
      block_ranks.Sum(codes, i, finish);
    }
  }
}

#endif  // ONEBIT_SUMS_EXACTLY

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
