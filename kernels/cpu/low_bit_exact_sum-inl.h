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
//   Sum(codes, i, emit)       elements [i, i + kStep): calls emit(j, stride, sums), where sums[v]
//                             are those of elements i + j + v * stride, ... as 32-bit integers
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_SUM_INL_H_
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_ranks-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <LowBitCodec kCodec>
inline constexpr bool kHasExactSum = HWY_TARGET == HWY_AVX3 &&
                                     (kCodec == LowBitCodec::kFp4 || kCodec == LowBitCodec::kInt8 ||
                                      kCodec == LowBitCodec::kInt2);

// One rank is decoded as it is.
inline constexpr size_t kMinExactRanks = 2;

#if HWY_TARGET == HWY_AVX3

template <LowBitCodec kCodec, size_t kRanks>
class ExactRanks;

// The exponent of a scale, which is positive and normal.
HWY_INLINE uint32_t ExponentOf(uint32_t scale) { return scale >> 7; }

// The scale of rank `k` in units in which the smallest scale of the block is 128 to 255.
HWY_INLINE uint32_t ScaleInUnits(const RanksAtOnce& ranks, size_t k, size_t index) {
  const uint32_t scale = ranks.Scales(k)[index];
  return ((scale & 0x7F) | 0x80) << (ExponentOf(scale) - ExponentOf(ranks.smallest_scales[index]));
}

// Loads the codes of a vector, and fetches ahead.
HWY_INLINE __m512i LoadCodes(const uint8_t* codes, size_t byte) {
  FetchCodesAhead<64>(codes, byte);
  return _mm512_loadu_si512(codes + byte);
}
HWY_INLINE __m512i LoadWords(const std::array<uint16_t, 32>& words) {
  return _mm512_load_si512(words.data());
}
HWY_INLINE __m512i SetWords(uint32_t word) { return _mm512_set1_epi16(static_cast<int16_t>(word)); }

// The bits of `a` where the mask has ones, those of `b` elsewhere.
HWY_INLINE __m512i ChooseBits(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}

// ---- fp4

// The values of codes are looked up as bytes. Those of two ranks lie side by side, are multiplied
// with the mantissas, and added to 16 bits, as are two such pairs. The sums of four ranks each are
// added to 32 bits.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kFp4, kRanks> {
 public:
  static constexpr size_t kStep = 128;
  static constexpr uint32_t kLargestValue = 12;
  static constexpr int kUnitExponent = -1;
  static constexpr uint32_t kMaxScale = 32767 / (4 * kLargestValue);

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    const uint32_t exponent = ExponentOf(ranks.smallest_scales[index]);
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const uint32_t first = ranks.Scales(2 * pair)[index];
      values_[2 * pair] = _mm512_load_si512(kValues[ExponentOf(first) - exponent].data());
      if (2 * pair + 1 == kRanks) {
        mantissas_[pair] = SetWords((first & 0xFF) | 0x80);
      } else {
        const uint32_t second = ranks.Scales(2 * pair + 1)[index];
        values_[2 * pair + 1] = _mm512_load_si512(kValues[ExponentOf(second) - exponent].data());
        mantissas_[pair] = SetWords((first & 0xFF) | second << 8 | 0x8080);
      }
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    // Elements 32 L + j of code lane L, j = 0, 2, ... 14 in sum[0], 1, 3, ... 15 in sum[1], 16,
    // 18, ... in sum[2], and 17, 19, ... in sum[3].
    __m512i sum[2][4];
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const Values a(codes[2 * pair], i / 2, values_[2 * pair]);
      const Values b =
          2 * pair + 1 == kRanks ? a : Values(codes[2 * pair + 1], i / 2, values_[2 * pair + 1]);
      const __m512i added[4] = {
          _mm512_maddubs_epi16(mantissas_[pair], _mm512_unpacklo_epi8(a.even, b.even)),
          _mm512_maddubs_epi16(mantissas_[pair], _mm512_unpacklo_epi8(a.odd, b.odd)),
          _mm512_maddubs_epi16(mantissas_[pair], _mm512_unpackhi_epi8(a.even, b.even)),
          _mm512_maddubs_epi16(mantissas_[pair], _mm512_unpackhi_epi8(a.odd, b.odd))};
      HWY_UNROLL(4)
      for (size_t k = 0; k < 4; ++k) {
        __m512i& to = sum[pair / 2][k];
        to = pair % 2 == 0 ? added[k] : _mm512_add_epi16(to, added[k]);
      }
    }
    if constexpr (kPairs <= 2) {
      for (__m512i& none : sum[1]) none = _mm512_setzero_si512();
    }
    const __m512i ones = _mm512_set1_epi16(1);
    HWY_UNROLL(2)
    for (size_t high = 0; high < 2; ++high) {
      __m512i of_lane[4];
      HWY_UNROLL(2)
      for (size_t lane = 0; lane < 4; lane += 2) {
        const __m512i order = LoadWords(kOrder[lane / 2]);
        const __m512i a = _mm512_permutex2var_epi16(sum[0][2 * high], order, sum[0][2 * high + 1]);
        const __m512i b = _mm512_permutex2var_epi16(sum[1][2 * high], order, sum[1][2 * high + 1]);
        of_lane[lane] = _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), ones);
        of_lane[lane + 1] = _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), ones);
      }
      emit(16 * high, 32, of_lane);
    }
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  // The values of the elements with even and with odd numbers, as bytes.
  struct Values {
    __m512i even, odd;

    HWY_INLINE Values(const uint8_t* codes, size_t byte, __m512i values) {
      const __m512i low = _mm512_set1_epi8(0x0F);
      const __m512i both = LoadCodes(codes, byte);
      even = _mm512_shuffle_epi8(values, _mm512_and_si512(both, low));
      odd = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi16(both, 4), low));
    }
  };

  // The values of all codes, times a power of 2, in each lane.
  using Bytes = std::array<int8_t, 64>;
  static constexpr Bytes ValuesTimes(int factor) {
    constexpr int kMagnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
    Bytes bytes = {};
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int magnitude = kMagnitudes[i % 8] * factor;
      bytes[i] = static_cast<int8_t>(i % 16 < 8 ? magnitude : -magnitude);
    }
    return bytes;
  }
  static_assert(kMaxScale < 128 << 3);
  alignas(64) static constexpr Bytes kValues[] = {ValuesTimes(1), ValuesTimes(2), ValuesTimes(4)};

  // Gathers elements 32 L + 0 ... 15 of two lanes L, from vectors with even and with odd ones, so
  // that the lower halves of lanes hold those of the first.
  static constexpr std::array<uint16_t, 32> OrderOf(size_t first_lane) {
    std::array<uint16_t, 32> order = {};
    for (size_t i = 0; i < 32; ++i) {
      const size_t lane = first_lane + i % 8 / 4;
      const size_t element = i / 8 * 4 + i % 4;
      order[i] = static_cast<uint16_t>(element % 2 * 32 + lane * 8 + element / 2);
    }
    return order;
  }
  alignas(64) static constexpr std::array<uint16_t, 32> kOrder[] = {OrderOf(0), OrderOf(2)};

  __m512i values_[kRanks];
  __m512i mantissas_[kPairs];
};

// ---- int2

// The codes of two ranks are merged to four bits, for which the sum of both values is looked up as
// 16 bits.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kInt2, kRanks> {
 public:
  static constexpr size_t kStep = 256;
  static constexpr uint32_t kLargestValue = 3;
  static constexpr int kUnitExponent = -1 - 16;
  static constexpr uint32_t kMaxScale = 32767 / (kMaxRanksAtOnce * kLargestValue);

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      sums_[pair] =
          _mm512_mullo_epi16(LoadWords(kValues[0]), SetWords(ScaleInUnits(ranks, 2 * pair, index)));
      if (2 * pair + 1 == kRanks) continue;
      const __m512i second = _mm512_mullo_epi16(LoadWords(kValues[1]),
                                                SetWords(ScaleInUnits(ranks, 2 * pair + 1, index)));
      sums_[pair] = _mm512_add_epi16(sums_[pair], second);
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    const __m512i mask = _mm512_set1_epi8(0x33);
    __m512i sum[8];  // element j of every word
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const __m512i a = LoadCodes(codes[2 * pair], i / 4);
      const __m512i b = 2 * pair + 1 == kRanks ? a : LoadCodes(codes[2 * pair + 1], i / 4);
      const __m512i even = ChooseBits(mask, a, _mm512_slli_epi16(b, 2));
      const __m512i odd = ChooseBits(mask, _mm512_srli_epi16(a, 2), b);
      HWY_UNROLL(8)
      for (size_t j = 0; j < 8; ++j) {
        // Uses only the lowest five bits of an index.
        const __m512i index = _mm512_srli_epi16(j % 2 == 0 ? even : odd, j / 2 * 4);
        const __m512i added = _mm512_permutexvar_epi16(index, sums_[pair]);
        sum[j] = pair == 0 ? added : _mm512_add_epi16(sum[j], added);
      }
    }
    HWY_UNROLL(4)
    for (size_t word = 0; word < 8; word += 2) {  // of each lane
      const __m512i low = Transpose(word, sum[0], sum[1], sum[2], sum[3]);
      const __m512i high = Transpose(word, sum[4], sum[5], sum[6], sum[7]);
      __m512i of_lane[4];
      HWY_UNROLL(4)
      for (size_t lane = 0; lane < 4; ++lane) {
        // Multiplies with 2^16.
        of_lane[lane] =
            _mm512_maskz_permutex2var_epi16(0xAAAAAAAA, low, LoadWords(kOrder[lane]), high);
      }
      emit(8 * word, 64, of_lane);
    }
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  // Word `word` of each lane of all vectors, and then the next.
  static HWY_INLINE __m512i Transpose(size_t word, __m512i v0, __m512i v1, __m512i v2, __m512i v3) {
    const bool is_high = word >= 4;
    const __m512i a = is_high ? _mm512_unpackhi_epi16(v0, v1) : _mm512_unpacklo_epi16(v0, v1);
    const __m512i b = is_high ? _mm512_unpackhi_epi16(v2, v3) : _mm512_unpacklo_epi16(v2, v3);
    return word % 4 == 0 ? _mm512_unpacklo_epi32(a, b) : _mm512_unpackhi_epi32(a, b);
  }

  // The values of the first and of the second rank, for the merged code and a bit that follows.
  static constexpr std::array<uint16_t, 32> ValuesOf(size_t shift) {
    constexpr int kOfCode[] = {1, 3, -3, -1};
    std::array<uint16_t, 32> values = {};
    for (size_t i = 0; i < 32; ++i) values[i] = static_cast<uint16_t>(kOfCode[i >> shift & 3]);
    return values;
  }
  alignas(64) static constexpr std::array<uint16_t, 32> kValues[] = {ValuesOf(0), ValuesOf(2)};

  // Moves the eight sums of two words in a lane of two vectors to the upper halves of dwords.
  static constexpr std::array<uint16_t, 32> OrderOf(size_t lane) {
    std::array<uint16_t, 32> order = {};
    for (size_t i = 0; i < 32; ++i) {
      const size_t word = i / 16, element = i / 2 % 8;
      order[i] = static_cast<uint16_t>(element / 4 * 32 + lane * 8 + word * 4 + element % 4);
    }
    return order;
  }
  alignas(64) static constexpr std::array<uint16_t, 32> kOrder[] = {OrderOf(0), OrderOf(1),
                                                                    OrderOf(2), OrderOf(3)};

  __m512i sums_[kPairs];
};

// ---- int8

// Words of two codes of two ranks lie side by side. The upper code alone, and the lower one moved
// up, are the values times 2^8.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kInt8, kRanks> {
 public:
  static constexpr size_t kStep = 64;
  static constexpr uint32_t kLargestValue = 128;
  static constexpr int kUnitExponent = -8;
  static constexpr uint32_t kMaxScale =
      0x7FFFFFFF / (kMaxRanksAtOnce * kLargestValue << -kUnitExponent);

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      uint32_t scales = ScaleInUnits(ranks, 2 * pair, index);
      if (2 * pair + 1 != kRanks) scales |= ScaleInUnits(ranks, 2 * pair + 1, index) << 16;
      scales_[pair] = _mm512_set1_epi32(static_cast<int32_t>(scales));
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    __m512i in_order[4];
    HWY_UNROLL(2)
    for (size_t half = 0; half < 2; ++half) {
      __m512i even, odd;
      HWY_UNROLL(4)
      for (size_t pair = 0; pair < kPairs; ++pair) {
        const __m512i a = LoadHalf(codes[2 * pair], i, half);
        const __m512i b = 2 * pair + 1 == kRanks ? a : LoadHalf(codes[2 * pair + 1], i, half);
        const __m512i both = _mm512_permutex2var_epi16(a, LoadWords(kPairOrder), b);
        const __m512i low = _mm512_madd_epi16(_mm512_slli_epi16(both, 8), scales_[pair]);
        const __m512i high =
            _mm512_madd_epi16(_mm512_and_si512(both, SetWords(0xFF00)), scales_[pair]);
        even = pair == 0 ? low : _mm512_add_epi32(even, low);
        odd = pair == 0 ? high : _mm512_add_epi32(odd, high);
      }
      in_order[2 * half] =
          _mm512_permutex2var_epi32(even, _mm512_load_si512(kOrder[0].data()), odd);
      in_order[2 * half + 1] =
          _mm512_permutex2var_epi32(even, _mm512_load_si512(kOrder[1].data()), odd);
    }
    emit(0, 16, in_order);
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  static HWY_INLINE __m512i LoadHalf(const uint8_t* codes, size_t byte, size_t half) {
    if (half == 0) FetchCodesAhead<kStep>(codes, byte);
    const auto* at = reinterpret_cast<const __m256i*>(codes + byte) + half;
    return _mm512_castsi256_si512(_mm256_loadu_si256(at));
  }

  // Takes elements of two vectors by turns, from `begin` on.
  template <class Index, size_t kCount>
  static constexpr std::array<Index, kCount> TakeTurns(size_t begin) {
    std::array<Index, kCount> order = {};
    for (size_t i = 0; i < kCount; ++i) {
      order[i] = static_cast<Index>(begin + i / 2 + i % 2 * kCount);
    }
    return order;
  }
  alignas(64) static constexpr auto kPairOrder = TakeTurns<uint16_t, 32>(0);
  alignas(64) static constexpr std::array<uint32_t, 16> kOrder[] = {TakeTurns<uint32_t, 16>(0),
                                                                    TakeTurns<uint32_t, 16>(8)};

  __m512i scales_[kPairs];
};

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
  const __m512i highest = _mm512_set1_epi8(static_cast<char>(0x88));
  const __m512i lowest = _mm512_set1_epi8(0x11);
  __m512i found = _mm512_setzero_si512();
  for (size_t i = 0; i < bytes; i += 64) {
    const __m512i other = _mm512_xor_si512(_mm512_loadu_si512(fp4_codes + i), highest);
    const __m512i difference = _mm512_sub_epi64(other, lowest);
    // found | (difference & ~other)
    found = _mm512_ternarylogic_epi32(found, difference, other, 0xF4);
  }
  return _mm512_test_epi32_mask(found, highest) != 0;
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
  const hn::ScalableTag<uint16_t> d;
  const size_t first_block = begin / in.block;
  const auto is_block = hn::FirstN(d, BlockCount(count, in.block));
  auto smallest = hn::Set(d, 0xFFFF), largest = hn::Zero(d);
  for (size_t rank = 0; rank < in.ranks; ++rank) {
    const auto scales = hn::MaskedLoad(is_block, d, in.packets[rank].scales + first_block);
    smallest = hn::Min(smallest, scales);
    largest = hn::Max(largest, scales);
  }
  // Bits of positive numbers order like these, and negative ones are above. The distance from 128
  // to the largest scale in units follows from bits, too.
  const uint32_t max_bits = std::bit_cast<uint32_t>(static_cast<float>(max_scale)) >> 16;
  constexpr uint32_t k128 = (127 + 7) << 7;
  const auto distance = hn::Sub(largest, hn::And(smallest, hn::Set(d, 0xFF80)));
  const auto is_far = hn::Gt(distance, hn::Set(d, static_cast<uint16_t>(max_bits - k128)));
  const auto is_inexact = hn::Or(is_far, hn::Or(hn::Lt(smallest, hn::Set(d, kMinBits)),
                                                hn::Gt(largest, hn::Set(d, kMaxBits))));
  hn::Store(smallest, d, exact.smallest_scales);
  exact.bits = ~static_cast<uint32_t>(is_inexact.raw);
}

// Adds ranks if every block meets these conditions; the count is a multiple of kStep.
template <LowBitCodec kCodec, size_t kRanks, bool kIsFirst>
HWY_NOINLINE void AddExactly(const RanksAtOnce& ranks, const float* partial, float* to,
                             const SumEnd& end_in_memory) {
  using Ranks = ExactRanks<kCodec, kRanks>;
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
      const auto finish = [&]<size_t kVectors>(size_t first, size_t stride,
                                               const __m512i(&integers)[kVectors]) HWY_ATTR {
        // All of this is exact but the division.
        VF sum[kVectors];
        HWY_UNROLL(4)
        for (size_t v = 0; v < kVectors; ++v) {
          sum[v] = hn::Mul(hn::ConvertTo(kF32, hn::Vec<DI32>{integers[v]}), units);
          if constexpr (!kIsFirst) {
            sum[v] = hn::Add(sum[v], hn::LoadU(kF32, partial + i + first + v * stride));
            if (end.step == SumEnd::kMultiply) sum[v] = hn::Mul(sum[v], factor);
          }
        }
        if (end.step == SumEnd::kDivide) {
          HWY_UNROLL(4)
          for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Div(sum[v], factor);
        }
        HWY_UNROLL(4)
        for (size_t v = 0; v < kVectors; ++v) {
          if (end.is_streamed) {
            StoreF32As<DataType::kF32, true>(sum[v], to, i + first + v * stride);
          } else {
            hn::StoreU(sum[v], kF32, to + i + first + v * stride);
          }
        }
      };
      block_ranks.Sum(codes, i, finish);
    }
  }
}

#endif  // HWY_AVX3

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
