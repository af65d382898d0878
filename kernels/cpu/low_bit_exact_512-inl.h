// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ExactRanks (low_bit_exact_sum-inl.h) in vectors of 512 bits. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_512_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_512_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_512_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_ranks-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

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
class ExactRanks<LowBitCodec::kFp4, kRanks> : public ExactUnits<LowBitCodec::kFp4> {
 public:
  static constexpr size_t kStep = 128;

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
      emit(16 * high, 32, 64, of_lane);
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

  alignas(64) static constexpr auto kValues = ExactUnits<LowBitCodec::kFp4>::Values<64>();

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
class ExactRanks<LowBitCodec::kInt2, kRanks> : public ExactUnits<LowBitCodec::kInt2> {
 public:
  static constexpr size_t kStep = 256;

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
      emit(8 * word, 64, 128, of_lane);
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

  using Units = ExactUnits<LowBitCodec::kInt2>;
  alignas(64) static constexpr std::array<uint16_t, 32> kValues[] = {Units::ValuesOf<32>(0),
                                                                     Units::ValuesOf<32>(2)};

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
class ExactRanks<LowBitCodec::kInt8, kRanks> : public ExactUnits<LowBitCodec::kInt8> {
 public:
  static constexpr size_t kStep = 64;

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      scales_[pair] =
          _mm512_set1_epi32(static_cast<int32_t>(ScalesOfPair<kRanks>(ranks, pair, index)));
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
    emit(0, 16, 32, in_order);
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

#endif  // HWY_AVX3

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
