// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// ExactRanks (low_bit_exact_sum-inl.h) in vectors of 256 bits. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_256_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_256_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_256_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_EXACT_256_INL_H_
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

#if HWY_TARGET == HWY_AVX2

// Loads the codes of a vector.
HWY_INLINE __m256i LoadCodes(const uint8_t* codes, size_t byte) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + byte));
}
// Fetches ahead of two vectors of codes, a line, of each rank.
template <size_t kRanks>
HWY_INLINE void FetchLinesAhead(const uint8_t* const* codes, size_t byte) {
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) FetchCodesAhead<64>(codes[k], byte);
}
template <class Array>
HWY_INLINE __m256i LoadArray(const Array& array) {
  static_assert(sizeof(array) == sizeof(__m256i));
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(array.data()));
}
HWY_INLINE __m256i SetWords(uint32_t word) { return _mm256_set1_epi16(static_cast<int16_t>(word)); }

// Emits elements j ... j + 15 and kApart + j ... kApart + j + 15: vector k has elements 4 k + 0 ...
// 3 of the former in its lower half and of the latter in its upper one.
template <size_t kApart, class Emit>
HWY_INLINE void EmitHalves(size_t j, const __m256i (&v)[4], const Emit& emit) {
  const __m256i in_order[4] = {
      _mm256_permute2x128_si256(v[0], v[1], 0x20), _mm256_permute2x128_si256(v[2], v[3], 0x20),
      _mm256_permute2x128_si256(v[0], v[1], 0x31), _mm256_permute2x128_si256(v[2], v[3], 0x31)};
  emit(j, 8, kApart, in_order);
}

// ---- fp4

// As in vectors of 512 bits: the values of codes are looked up as bytes; those of two ranks lie
// side by side, are multiplied with the mantissas, and added to 16 bits, as are two such pairs. The
// sums of four ranks each are added to 32 bits.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kFp4, kRanks> : public ExactUnits<LowBitCodec::kFp4> {
 public:
  static constexpr size_t kStep = 128;

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    const uint32_t exponent = ExponentOf(ranks.smallest_scales[index]);
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const uint32_t first = ranks.Scales(2 * pair)[index];
      values_[2 * pair] = LoadArray(kValues[ExponentOf(first) - exponent]);
      if (2 * pair + 1 == kRanks) {
        mantissas_[pair] = SetWords((first & 0xFF) | 0x80);
      } else {
        const uint32_t second = ranks.Scales(2 * pair + 1)[index];
        values_[2 * pair + 1] = LoadArray(kValues[ExponentOf(second) - exponent]);
        mantissas_[pair] = SetWords((first & 0xFF) | second << 8 | 0x8080);
      }
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    FetchLinesAhead<kRanks>(codes, i / 2);
    SumVector(codes, i, 0, emit);
    SumVector(codes, i + kStep / 2, kStep / 2, emit);
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  // The sums of a vector of codes of each rank; `first` is for emit.
  template <class Emit>
  HWY_INLINE void SumVector(const uint8_t* const* codes, size_t i, size_t first,
                            const Emit& emit) const {
    // Four ranks each: the sums of the elements 32 L + 0, 2, ... 14 of lane L, of 1, 3, ... 15, of
    // 16, 18, ... 30, and of 17, 19, ... 31.
    __m256i sum[2][4];
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const Values a(codes[2 * pair], i / 2, values_[2 * pair]);
      const Values b =
          2 * pair + 1 == kRanks ? a : Values(codes[2 * pair + 1], i / 2, values_[2 * pair + 1]);
      const __m256i added[4] = {
          _mm256_maddubs_epi16(mantissas_[pair], _mm256_unpacklo_epi8(a.even, b.even)),
          _mm256_maddubs_epi16(mantissas_[pair], _mm256_unpacklo_epi8(a.odd, b.odd)),
          _mm256_maddubs_epi16(mantissas_[pair], _mm256_unpackhi_epi8(a.even, b.even)),
          _mm256_maddubs_epi16(mantissas_[pair], _mm256_unpackhi_epi8(a.odd, b.odd))};
      HWY_UNROLL(4)
      for (size_t k = 0; k < 4; ++k) {
        __m256i& to = sum[pair / 2][k];
        to = pair % 2 == 0 ? added[k] : _mm256_add_epi16(to, added[k]);
      }
    }
    if constexpr (kPairs <= 2) {
      for (__m256i& none : sum[1]) none = _mm256_setzero_si256();
    }
    const __m256i ones = _mm256_set1_epi16(1);
    HWY_UNROLL(2)
    for (size_t half = 0; half < 2; ++half) {
      __m256i dwords[4];
      HWY_UNROLL(2)
      for (size_t k = 0; k < 2; ++k) {
        const __m256i a = InOrder(k, sum[0][2 * half], sum[0][2 * half + 1]);
        const __m256i b = InOrder(k, sum[1][2 * half], sum[1][2 * half + 1]);
        dwords[2 * k] = _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), ones);
        dwords[2 * k + 1] = _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), ones);
      }
      EmitHalves<32>(first + 16 * half, dwords, emit);
    }
  }

  // Elements 0 ... 7 (k = 0) or 8 ... 15 of each lane.
  static HWY_INLINE __m256i InOrder(size_t k, __m256i even, __m256i odd) {
    return k == 0 ? _mm256_unpacklo_epi16(even, odd) : _mm256_unpackhi_epi16(even, odd);
  }

  // The values of the elements with even and with odd numbers, as bytes.
  struct Values {
    __m256i even, odd;

    HWY_INLINE Values(const uint8_t* codes, size_t byte, __m256i values) {
      const __m256i low = _mm256_set1_epi8(0x0F);
      const __m256i both = LoadCodes(codes, byte);
      even = _mm256_shuffle_epi8(values, _mm256_and_si256(both, low));
      odd = _mm256_shuffle_epi8(values, _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
    }
  };

  alignas(32) static constexpr auto kValues = ExactUnits<LowBitCodec::kFp4>::Values<32>();

  __m256i values_[kRanks];
  __m256i mantissas_[kPairs];
};

// ---- int2

// As in vectors of 512 bits, the codes of two ranks are merged to four bits, for which the sum of
// both values is looked up; its two bytes one by one.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kInt2, kRanks> : public ExactUnits<LowBitCodec::kInt2> {
 public:
  static constexpr size_t kStep = 256;

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      __m256i sums = Products(0, ScaleInUnits(ranks, 2 * pair, index));
      if (2 * pair + 1 != kRanks) {
        sums = _mm256_add_epi16(sums, Products(1, ScaleInUnits(ranks, 2 * pair + 1, index)));
      }
      // The table has 16 words, and now its lower and its upper bytes in each lane.
      const __m256i low = _mm256_and_si256(sums, SetWords(0xFF));
      const __m256i bytes = _mm256_packus_epi16(low, _mm256_srli_epi16(sums, 8));
      const __m256i apart = _mm256_permute4x64_epi64(bytes, 0xD8);
      low_[pair] = _mm256_permute2x128_si256(apart, apart, 0x00);
      high_[pair] = _mm256_permute2x128_si256(apart, apart, 0x11);
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    FetchLinesAhead<kRanks>(codes, i / 4);
    SumVector(codes, i, 0, emit);
    SumVector(codes, i + kStep / 2, kStep / 2, emit);
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  // The sums of a vector of codes of each rank; `first` is for emit.
  template <class Emit>
  HWY_INLINE void SumVector(const uint8_t* const* codes, size_t i, size_t first,
                            const Emit& emit) const {
    const __m256i mask = _mm256_set1_epi8(0x33);
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    // Element k of the lower and of the upper eight bytes of each lane.
    __m256i sum[4][2];
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const __m256i a = LoadCodes(codes[2 * pair], i / 4);
      const __m256i b = 2 * pair + 1 == kRanks ? a : LoadCodes(codes[2 * pair + 1], i / 4);
      const __m256i even = _mm256_or_si256(_mm256_and_si256(a, mask),
                                           _mm256_andnot_si256(mask, _mm256_slli_epi16(b, 2)));
      const __m256i odd = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 2), mask),
                                          _mm256_andnot_si256(mask, b));
      const __m256i index[4] = {_mm256_and_si256(even, nibble), _mm256_and_si256(odd, nibble),
                                _mm256_and_si256(_mm256_srli_epi16(even, 4), nibble),
                                _mm256_and_si256(_mm256_srli_epi16(odd, 4), nibble)};
      HWY_UNROLL(4)
      for (size_t k = 0; k < 4; ++k) {
        const __m256i low = _mm256_shuffle_epi8(low_[pair], index[k]);
        const __m256i high = _mm256_shuffle_epi8(high_[pair], index[k]);
        const __m256i added[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
        HWY_UNROLL(2)
        for (size_t half = 0; half < 2; ++half) {
          sum[k][half] = pair == 0 ? added[half] : _mm256_add_epi16(sum[k][half], added[half]);
        }
      }
    }
    HWY_UNROLL(2)
    for (size_t half = 0; half < 2; ++half) {
      HWY_UNROLL(2)
      for (size_t quarter = 0; quarter < 2; ++quarter) {  // four bytes of each lane
        const __m256i a = Interleave(quarter, sum[0][half], sum[1][half]);
        const __m256i b = Interleave(quarter, sum[2][half], sum[3][half]);
        const __m256i words[2] = {_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)};
        // Multiplies with 2^16.
        const __m256i zero = _mm256_setzero_si256();
        const __m256i dwords[4] = {
            _mm256_unpacklo_epi16(zero, words[0]), _mm256_unpackhi_epi16(zero, words[0]),
            _mm256_unpacklo_epi16(zero, words[1]), _mm256_unpackhi_epi16(zero, words[1])};
        EmitHalves<64>(first + 32 * half + 16 * quarter, dwords, emit);
      }
    }
  }

  static HWY_INLINE __m256i Interleave(size_t quarter, __m256i a, __m256i b) {
    return quarter == 0 ? _mm256_unpacklo_epi16(a, b) : _mm256_unpackhi_epi16(a, b);
  }

  // The values of the first (0) or the second rank for a merged code, times a scale.
  static HWY_INLINE __m256i Products(size_t rank, uint32_t scale) {
    return _mm256_mullo_epi16(LoadArray(kValues[rank]), SetWords(scale));
  }
  using Units = ExactUnits<LowBitCodec::kInt2>;
  alignas(32) static constexpr std::array<uint16_t, 16> kValues[] = {Units::ValuesOf<16>(0),
                                                                     Units::ValuesOf<16>(2)};

  __m256i low_[kPairs];
  __m256i high_[kPairs];
};

// ---- int8

// As in vectors of 512 bits: words of two codes of two ranks lie side by side. The upper code
// alone, and the lower one moved up, are the values times 2^8.
template <size_t kRanks>
class ExactRanks<LowBitCodec::kInt8, kRanks> : public ExactUnits<LowBitCodec::kInt8> {
 public:
  static constexpr size_t kStep = 64;

  HWY_INLINE ExactRanks(const RanksAtOnce& ranks, size_t index) {
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      scales_[pair] =
          _mm256_set1_epi32(static_cast<int32_t>(ScalesOfPair<kRanks>(ranks, pair, index)));
    }
  }

  template <class Emit>
  HWY_INLINE void Sum(const uint8_t* const* codes, size_t i, const Emit& emit) const {
    FetchLinesAhead<kRanks>(codes, i);
    SumVector(codes, i, 0, emit);
    SumVector(codes, i + kStep / 2, kStep / 2, emit);
  }

 private:
  static constexpr size_t kPairs = (kRanks + 1) / 2;

  // The sums of a vector of codes of each rank; `first` is for emit.
  template <class Emit>
  HWY_INLINE void SumVector(const uint8_t* const* codes, size_t i, size_t first,
                            const Emit& emit) const {
    // The elements 16 L + 0, 2, 4, 6 of lane L, 1, 3, 5, 7, and so on for the others.
    __m256i even[2], odd[2];
    HWY_UNROLL(4)
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const __m256i a = LoadCodes(codes[2 * pair], i);
      const __m256i b = 2 * pair + 1 == kRanks ? a : LoadCodes(codes[2 * pair + 1], i);
      const __m256i both[2] = {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
      HWY_UNROLL(2)
      for (size_t half = 0; half < 2; ++half) {
        const __m256i low = _mm256_madd_epi16(_mm256_slli_epi16(both[half], 8), scales_[pair]);
        const __m256i high =
            _mm256_madd_epi16(_mm256_and_si256(both[half], SetWords(0xFF00)), scales_[pair]);
        even[half] = pair == 0 ? low : _mm256_add_epi32(even[half], low);
        odd[half] = pair == 0 ? high : _mm256_add_epi32(odd[half], high);
      }
    }
    const __m256i dwords[4] = {
        _mm256_unpacklo_epi32(even[0], odd[0]), _mm256_unpackhi_epi32(even[0], odd[0]),
        _mm256_unpacklo_epi32(even[1], odd[1]), _mm256_unpackhi_epi32(even[1], odd[1])};
    EmitHalves<16>(first, dwords, emit);
  }

  __m256i scales_[kPairs];
};

#endif  // HWY_AVX2

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
