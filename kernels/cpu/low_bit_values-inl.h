// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packed codes to vectors of values. Per-target header.
//
// Decoder<codec> has
//   Decoder(scale, minimum)   of the block
//   At(codes, i)              the values of elements i, i + 1, ..., a multiple of kLanes, counted
//                             from a byte boundary; reads codes of a whole vector. Their lanes may
//                             be permuted:
//   Restore(values)           from that order to the natural one
//   AddTo(sum, codes, i)      optional: sum + At(codes, i) in fewer operations, if no value
//                             overflows
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_VALUES_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_VALUES_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_VALUES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <LowBitCodec kCodec>
class Decoder;

// A decoder that leaves lanes in order.
struct NaturalOrder {
  static HWY_INLINE VF Restore(VF values) { return values; }
};

// Codes i, i + 1, ..., a vector of them, in the lowest bits.
template <size_t kBits>
HWY_INLINE uint64_t WordOfCodes(const uint8_t* codes, size_t i) {
  constexpr size_t kVectorBits = kLanes * kBits;
  if constexpr (kVectorBits < 8) {
    return static_cast<uint64_t>(codes[i * kBits / 8]) >> (i * kBits % 8);
  } else {
    uint64_t word = 0;
    memcpy(&word, codes + i * kBits / 8, kVectorBits / 8);
    return word;
  }
}

// The codes of a 32-bit word, each in the lowest bits of its lane, which other bits follow.
template <size_t kBits>
HWY_INLINE VU32 SpreadCodes(uint32_t word) {
  const VU32 shift = hn::Mul(hn::Iota(kU32, 0), hn::Set(kU32, kBits));
  return hn::Shr(hn::Set(kU32, word), shift);
}

// ---- fp4

#if HWY_TARGET == HWY_AVX3

template <>
class Decoder<LowBitCodec::kFp4> {
 public:
  HWY_INLINE Decoder() = default;
  HWY_INLINE Decoder(float scale, float /*minimum*/) {
    alignas(64) static constexpr float kUnits[kLanes] = {0,     .5,  1,  1.5,  2,  3,  4,  6,
                                                         -0.0f, -.5, -1, -1.5, -2, -3, -4, -6};
    values_ = hn::Mul(hn::Load(kF32, kUnits), hn::Set(kF32, scale));
  }

  // Shifts the word of 16 codes by 4 k in the k-th 64-bit lane. Its halves then begin with codes k
  // and k + 8.
  HWY_INLINE VF At(const uint8_t* codes, size_t i) const {
    const hn::Repartition<uint64_t, DF> d64;
    const auto shift = hn::ShiftLeft<2>(hn::Iota(d64, 0));
    const auto word = hn::Shr(hn::Set(d64, WordOfCodes<4>(codes, i)), shift);
    // Uses only the lowest four bits of an index; Highway's function demands that others be 0.
    return VF{_mm512_permutexvar_ps(word.raw, values_.raw)};
  }
  static HWY_INLINE VF Restore(VF values) {
    alignas(64) static constexpr int32_t kFrom[kLanes] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                          1, 3, 5, 7, 9, 11, 13, 15};
    return hn::TableLookupLanes(values, hn::SetTableIndices(kF32, kFrom));
  }

 private:
  VF values_;
};

#else

template <>
class Decoder<LowBitCodec::kFp4> : public NaturalOrder {
 public:
  HWY_INLINE Decoder() = default;
  HWY_INLINE Decoder(float scale, float /*minimum*/) : scale_(hn::Set(kF32, scale)) {
#if HWY_TARGET == HWY_AVX2
    alignas(32) static constexpr float kUnits[kLanes] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    scale_ = hn::Mul(hn::Load(kF32, kUnits), scale_);
#endif
  }

  HWY_INLINE VF At(const uint8_t* codes, size_t i) const {
    const VU32 code = SpreadCodes<4>(static_cast<uint32_t>(WordOfCodes<4>(codes, i)));
    const VU32 sign = hn::And(hn::ShiftLeft<28>(code), hn::Set(kU32, 0x80000000));
#if HWY_TARGET == HWY_AVX2
    // Uses only the lowest three bits of an index; Highway's function demands that others be 0.
    const VF value{_mm256_permutevar8x32_ps(scale_.raw, code.raw)};
    return hn::Xor(value, hn::BitCast(kF32, sign));
#else
    // These bits are .5, .75, 1, 1.5, 2, 3, 4, 6: right for all but the first two.
    const VU32 index = hn::And(code, hn::Set(kU32, 7));
    const VF units =
        hn::BitCast(kF32, hn::Add(hn::ShiftLeft<22>(index), hn::Set(kU32, 0x3F000000)));
    const VF small = hn::Sub(hn::Add(units, units), hn::Set(kF32, 1.0f));
    const VF magnitude = hn::IfThenElse(hn::Lt(units, hn::Set(kF32, 1.0f)), small, units);
    return hn::Mul(hn::Xor(magnitude, hn::BitCast(kF32, sign)), scale_);
#endif
  }

 private:
  VF scale_;  // AVX2: the products with all magnitudes
};

#endif

#if HWY_TARGET == HWY_AVX2
// The units of 32 codes, which are bytes. The codes of vector k are fours k of both halves of 128
// bits. Only the upper two bytes of a unit can differ from 0.
HWY_INLINE void UnitsOfFp4(__m256i codes, VF (&units)[4]) {
  alignas(16) static constexpr uint8_t kThird[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40,
                                                     0x80, 0xC0, 0x00, 0x00, 0x80, 0xC0,
                                                     0x00, 0x40, 0x80, 0xC0};
  alignas(16) static constexpr uint8_t kFourth[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40,
                                                      0x40, 0x40, 0x80, 0xBF, 0xBF, 0xBF,
                                                      0xC0, 0xC0, 0xC0, 0xC0};
  const auto look_up = [&](const uint8_t* bytes) HWY_ATTR {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  };
  const __m256i third = look_up(kThird), fourth = look_up(kFourth);
  const __m256i zero = _mm256_setzero_si256();
  HWY_UNROLL(2)
  for (size_t half = 0; half < 2; ++half) {
    const __m256i upper =
        half == 0 ? _mm256_unpacklo_epi8(third, fourth) : _mm256_unpackhi_epi8(third, fourth);
    units[2 * half] = VF{_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, upper))};
    units[2 * half + 1] = VF{_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, upper))};
  }
}
#endif

// ---- 2 bits

template <>
class Decoder<LowBitCodec::kInt2> : public NaturalOrder {
 public:
  HWY_INLINE Decoder() = default;
  HWY_INLINE Decoder(float scale, float /*minimum*/) : scale_(hn::Set(kF32, scale)) {
    if constexpr (kHasTable) {
      // Repeats, so that the bits of the next code do not matter.
      alignas(64) float units[kLanes];
      for (size_t k = 0; k < kLanes; ++k) units[k] = kUnits[k % 4];
      scale_ = hn::Mul(hn::Load(kF32, units), scale_);
    }
  }

  HWY_INLINE VF At(const uint8_t* codes, size_t i) const {
    const VU32 code = SpreadCodes<2>(static_cast<uint32_t>(WordOfCodes<2>(codes, i)));
#if HWY_TARGET == HWY_AVX3
    return VF{_mm512_permutexvar_ps(code.raw, scale_.raw)};
#elif HWY_TARGET == HWY_AVX2
    return VF{_mm256_permutevar8x32_ps(scale_.raw, code.raw)};
#else
    // Codes 2, 3, 0, 1 are the levels in ascending order.
    const VU32 level = hn::Xor(hn::And(code, hn::Set(kU32, 3)), hn::Set(kU32, 2));
    const VF units = hn::Sub(hn::ConvertTo(kF32, hn::BitCast(kI32, level)), hn::Set(kF32, 1.5f));
    return hn::Mul(units, scale_);
#endif
  }

 private:
  static constexpr bool kHasTable = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;
  static constexpr float kUnits[4] = {0.5f, 1.5f, -1.5f, -0.5f};

  VF scale_;  // with a table: the products with all levels
};

// ---- 8 bits

template <>
class Decoder<LowBitCodec::kInt8> : public NaturalOrder {
 public:
  HWY_INLINE Decoder() = default;
  HWY_INLINE Decoder(float scale, float /*minimum*/) : scale_(hn::Set(kF32, scale)) {}

  HWY_INLINE VF At(const uint8_t* codes, size_t i) const {
    return hn::Mul(UnitsAt(codes, i), scale_);
  }
  // The product is exact.
  HWY_INLINE VF AddTo(VF sum, const uint8_t* codes, size_t i) const {
    return hn::MulAdd(UnitsAt(codes, i), scale_, sum);
  }

 private:
  static HWY_INLINE VF UnitsAt(const uint8_t* codes, size_t i) {
    const hn::Rebind<int8_t, DF> d8;
    const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes) + i);
    return hn::ConvertTo(kF32, hn::PromoteTo(kI32, code));
  }

  VF scale_;
};

template <>
class Decoder<LowBitCodec::kUint8> : public NaturalOrder {
 public:
  HWY_INLINE Decoder() = default;
  HWY_INLINE Decoder(float scale, float minimum)
      : scale_(hn::Set(kF32, scale)), minimum_(hn::Set(kF32, minimum)) {}

  HWY_INLINE VF At(const uint8_t* codes, size_t i) const {
    return hn::Add(hn::Mul(UnitsAt(codes, i), scale_), minimum_);
  }
  // The product is exact.
  HWY_INLINE VF AddTo(VF sum, const uint8_t* codes, size_t i) const {
    return hn::Add(sum, hn::MulAdd(UnitsAt(codes, i), scale_, minimum_));
  }

 private:
  static HWY_INLINE VF UnitsAt(const uint8_t* codes, size_t i) {
    const hn::Rebind<uint8_t, DF> d8;
    return hn::ConvertTo(kF32, hn::PromoteTo(kI32, hn::LoadU(d8, codes + i)));
  }

  VF scale_;
  VF minimum_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
