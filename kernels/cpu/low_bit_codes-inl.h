// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codes of a vector of z, one in the lowest byte of each lane, and the values they stand for.
// Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_CODES_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_CODES_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/low_bit_codes.h"
#include "kernels/reference/low_bit_scale.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// The code of 8 bits is all of the lane, as a signed number.
struct Coded {
  VU32 code;
  VF value;
};

// Rounds numbers below 2^22 to the nearest integer, ties to even, and has it as fp32 without -0.
struct Rounded {
  VU32 integer;
  VF number;
};
HWY_INLINE Rounded RoundToInteger(VF t) {
#if HWY_TARGET == HWY_AVX3
  // Highway's function handles numbers out of range as well.
  const __m512i integer = _mm512_cvtps_epi32(t.raw);
  return {VU32{integer}, VF{_mm512_cvtepi32_ps(integer)}};
#elif HWY_TARGET == HWY_AVX2
  const __m256i integer = _mm256_cvtps_epi32(t.raw);
  return {VU32{integer}, VF{_mm256_cvtepi32_ps(integer)}};
#else
  // The sum has the integer in its lowest bits.
  const VF bias = hn::Set(kF32, 0x1.8p23f);
  const VF sum = hn::Add(t, bias);
  return {hn::Sub(hn::BitCast(kU32, sum), hn::BitCast(kU32, bias)), hn::Sub(sum, bias)};
#endif
}

// The values derived from a block's scale that encoding needs. Members are written and read one by
// one: a processor waits where it has to read several at once that were written one by one.
struct BlockScale {
  float scale = 0;
  float minimum = 0;
  float inverse = 0;
  bool is_finite = false;
};

template <LowBitCodec kCodec>
class BlockCoder;

// Groups of vectors are encoded together only if the inverse of the scale is below this, so that it
// does not overflow when it is multiplied by four.
inline constexpr float kMaxGroupInverse = 0x1p126f;

// ---- fp4

#if HWY_TARGET == HWY_AVX3

// All thresholds of fp4 have at most two bits after the leading one. So a magnitude's code depends
// on its exponent and the next two bits only: on 24 combinations if it is at least 1/8, which a
// table of two vectors holds at places that are the lowest five of these bits.
struct alignas(64) Fp4Table {
  uint32_t index[32];

  constexpr Fp4Table() : index() {
    for (uint32_t place = 0; place < 32; ++place) {
      const int exponent = static_cast<int>(place / 4) - (place / 4 >= 4 ? 7 : -1);
      float smallest = 1 + static_cast<float>(place % 4) / 4;
      for (int k = 0; k < exponent; ++k) smallest *= 2;
      for (int k = 0; k > exponent; --k) smallest /= 2;
      for (const float threshold : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
        index[place] += threshold <= smallest ? 1 : 0;
      }
    }
  }
};
inline constexpr Fp4Table kFp4Table{};

struct alignas(64) Fp4WordTable {
  uint16_t index[32];
  uint16_t upper_half[32];  // of the numbers in two vectors

  constexpr Fp4WordTable() : index(), upper_half() {
    for (size_t k = 0; k < 32; ++k) {
      index[k] = static_cast<uint16_t>(kFp4Table.index[k]);
      upper_half[k] = static_cast<uint16_t>(2 * k + 1);
    }
  }
};
inline constexpr Fp4WordTable kFp4WordTable{};

template <>
class BlockCoder<LowBitCodec::kFp4> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)),
        low_(hn::Load(kU32, kFp4Table.index)),
        high_(hn::Load(kU32, kFp4Table.index + kLanes)) {
    alignas(64) static constexpr float kUnits[kLanes] = {0,     .5,  1,  1.5,  2,  3,  4,  6,
                                                         -0.0f, -.5, -1, -1.5, -2, -3, -4, -6};
    values_ = hn::Mul(hn::Load(kF32, kUnits), hn::Set(kF32, block.scale));
  }

  HWY_INLINE Coded Encode(VF z) const {
    const VF t = hn::Mul(z, inverse_);
    const VF magnitude = hn::Max(hn::Abs(t), hn::Set(kF32, 0.125f));
    const VU32 place = hn::ShiftRight<21>(hn::BitCast(kU32, magnitude));
    // Highway 1.0.3 has no function for these: both use only the lowest bits of an index.
    const __m512i index = _mm512_permutex2var_epi32(low_.raw, place.raw, high_.raw);
    const MF is_negative = hn::Le(t, hn::Set(kF32, -0.25f));  // and its code is not 0
    const VU32 code{_mm512_mask_or_epi32(index, is_negative.raw, index, hn::Set(kU32, 8).raw)};
    return {code, VF{_mm512_permutexvar_ps(code.raw, values_.raw)}};
  }

  // Codes of two vectors as words, in half the instructions: a code depends on the upper half of a
  // number only, and a table of words is one vector.
  HWY_INLINE __m512i EncodeToWords(VF a, VF b) const {
    const __m512i upper_halves = _mm512_load_si512(kFp4WordTable.upper_half);
    const __m512i t =
        _mm512_permutex2var_epi16(_mm512_castps_si512(hn::Mul(a, inverse_).raw), upper_halves,
                                  _mm512_castps_si512(hn::Mul(b, inverse_).raw));
    const __m512i magnitude = _mm512_max_epu16(_mm512_and_si512(t, _mm512_set1_epi16(0x7FFF)),
                                               _mm512_set1_epi16(0x3E00));  // 1/8
    const __m512i index = _mm512_permutexvar_epi16(_mm512_srli_epi16(magnitude, 5),
                                                   _mm512_load_si512(kFp4WordTable.index));
    // At most -1/4, and the code is not 0.
    const __mmask32 is_negative =
        _mm512_cmpge_epu16_mask(t, _mm512_set1_epi16(static_cast<int16_t>(0xBE80)));
    return _mm512_mask_add_epi16(index, is_negative, index, _mm512_set1_epi16(8));
  }

 private:
  VF inverse_;
  VU32 low_;
  VU32 high_;
  VF values_;
};

#elif HWY_TARGET == HWY_AVX2

// All thresholds of fp4 are whole quarters, so a code follows from the whole quarters in t, of
// which there are at most 24.
template <>
class BlockCoder<LowBitCodec::kFp4> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : scale_(hn::Set(kF32, block.scale)),
        inverse_(hn::Set(kF32, block.inverse)),
        quarters_(hn::Set(kF32, 4 * block.inverse)) {}

  HWY_INLINE Coded Encode(VF z) const {
    const VF t = hn::Mul(hn::Mul(z, inverse_), hn::Set(kF32, 4.0f));
    const __m256i quarters = _mm256_cvttps_epi32(t.raw);
    const __m256i index = IndexOf(_mm256_abs_epi32(quarters));
    // A code that is not 0 has the sign of the quarters.
    const __m256i sign = _mm256_and_si256(quarters, _mm256_set1_epi32(INT32_MIN));
    alignas(32) static constexpr float kUnits[kLanes] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    const __m256 unit = _mm256_permutevar8x32_ps(_mm256_load_ps(kUnits), index);
    return {VU32{_mm256_or_si256(index, _mm256_srli_epi32(sign, 28))},
            hn::Mul(VF{_mm256_or_ps(unit, _mm256_castsi256_ps(sign))}, scale_)};
  }

  // Codes of four vectors as bytes in the order of NarrowCodes, if the inverse of the scale is
  // below kMaxGroupInverse.
  HWY_INLINE __m256i EncodeToBytes(VF a, VF b, VF c, VF d) const {
    const __m256i ab = _mm256_packs_epi32(QuartersOf(a), QuartersOf(b));
    const __m256i cd = _mm256_packs_epi32(QuartersOf(c), QuartersOf(d));
    const __m256i quarters = _mm256_packs_epi16(ab, cd);
    const __m256i index = IndexOf(_mm256_abs_epi8(quarters));
    return _mm256_or_si256(index,
                           _mm256_and_si256(_mm256_srli_epi16(quarters, 4), _mm256_set1_epi8(8)));
  }

  HWY_INLINE VF Scale() const { return scale_; }

 private:
  // The indices of magnitudes in quarters, which are bytes. Bytes of 0 stay 0.
  static HWY_INLINE __m256i IndexOf(__m256i quarters) {
    const __m256i indices = _mm256_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6,  //
                                             0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6);
    const __m256i below_20 =
        _mm256_shuffle_epi8(indices, _mm256_min_epu8(quarters, _mm256_set1_epi8(15)));
    return _mm256_sub_epi8(below_20, _mm256_cmpgt_epi8(quarters, _mm256_set1_epi8(19)));
  }

  HWY_INLINE __m256i QuartersOf(VF z) const {
    return _mm256_cvttps_epi32(hn::Mul(z, quarters_).raw);
  }

  VF scale_;
  VF inverse_;
  VF quarters_;
};

#else

template <>
class BlockCoder<LowBitCodec::kFp4> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)), scale_(hn::Set(kF32, block.scale)) {}

  HWY_INLINE Coded Encode(VF z) const {
    const VF t = hn::Mul(z, inverse_);
    const VF magnitude = hn::Abs(t);
    // From 1 on, the index is the exponent and the next bit, rounded half away from 0; a carry out
    // of the bit gives the next exponent.
    const VU32 rounded = hn::Add(hn::BitCast(kU32, magnitude), hn::Set(kU32, 1u << 21));
    const VU32 above = hn::Sub(hn::ShiftRight<22>(rounded), hn::Set(kU32, 252));
    const VU32 one = hn::Set(kU32, 1);
    const VU32 below = hn::Add(OneIf(hn::Ge(magnitude, hn::Set(kF32, 0.25f)), one),
                               OneIf(hn::Ge(magnitude, hn::Set(kF32, 0.75f)), one));
    const MF is_above = hn::Ge(magnitude, hn::Set(kF32, 1.0f));
    const VU32 index = hn::IfThenElse(hn::RebindMask(kU32, is_above), above, below);
    const MF is_negative = hn::Le(t, hn::Set(kF32, -0.25f));  // and its code is not 0
    const VU32 code = hn::Or(index, OneIf(is_negative, hn::Set(kU32, 8)));
    // These bits are .5, .75, 1, 1.5, 2, 3, 4, 6: right for all but the first two.
    const VF units =
        hn::BitCast(kF32, hn::Add(hn::ShiftLeft<22>(index), hn::Set(kU32, 0x3F000000)));
    const VF small = hn::Sub(hn::Add(units, units), hn::Set(kF32, 1.0f));
    const VF value = hn::IfThenElse(hn::Lt(units, hn::Set(kF32, 1.0f)), small, units);
    const VU32 sign = hn::ShiftLeft<28>(hn::And(code, hn::Set(kU32, 8)));
    return {code, hn::Mul(hn::Or(value, hn::BitCast(kF32, sign)), scale_)};
  }

 private:
  static HWY_INLINE VU32 OneIf(MF condition, VU32 one) {
    return hn::IfThenElseZero(hn::RebindMask(kU32, condition), one);
  }

  VF inverse_;
  VF scale_;
};

#endif

// ---- Integers

// A bf16 scale is at most 2^-8 too small, so t is below 127.5 and needs no limit.
template <>
class BlockCoder<LowBitCodec::kInt8> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)), scale_(hn::Set(kF32, block.scale)) {}

  HWY_INLINE Coded Encode(VF z) const {
    const Rounded q = RoundToInteger(hn::Mul(z, inverse_));
    return {q.integer, hn::Mul(q.number, scale_)};
  }

 private:
  VF inverse_;
  VF scale_;
};

template <>
class BlockCoder<LowBitCodec::kUint8> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)),
        scale_(hn::Set(kF32, block.scale)),
        minimum_(hn::Set(kF32, block.minimum)) {}

  HWY_INLINE Coded Encode(VF z) const {
    VF t = hn::Mul(hn::Sub(z, minimum_), inverse_);
    t = hn::Min(hn::Max(t, hn::Zero(kF32)), hn::Set(kF32, 255.0f));
    const Rounded q = RoundToInteger(t);
    return {q.integer, hn::Add(hn::Mul(q.number, scale_), minimum_)};
  }

 private:
  VF inverse_;
  VF scale_;
  VF minimum_;
};

template <>
class BlockCoder<LowBitCodec::kInt2> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)), scale_(hn::Set(kF32, block.scale)) {}

  HWY_INLINE Coded Encode(VF z) const {
    VF q = hn::Floor(hn::Mul(z, inverse_));
    q = hn::Min(hn::Max(q, hn::Set(kF32, -2.0f)), hn::Set(kF32, 1.0f));
    const VU32 code = hn::And(RoundToInteger(q).integer, hn::Set(kU32, 3));
    return {code, hn::Mul(hn::Add(q, hn::Set(kF32, 0.5f)), scale_)};
  }

 private:
  VF inverse_;
  VF scale_;
};

template <>
class BlockCoder<LowBitCodec::kInt8Stochastic> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block)
      : inverse_(hn::Set(kF32, block.inverse)) {}

  HWY_INLINE VU32 Encode(VF z, VU32 random) const {
    const VF t = hn::Mul(z, inverse_);
    const VF floor = hn::Floor(t);
    const VF unit = hn::ConvertTo(kF32, hn::BitCast(kI32, hn::ShiftRight<8>(random)));
    const MF is_up = hn::Lt(hn::Mul(unit, hn::Set(kF32, 0x1p-24f)), hn::Sub(t, floor));
    VF q = hn::Add(floor, hn::IfThenElseZero(is_up, hn::Set(kF32, 1.0f)));
    q = hn::Min(hn::Max(q, hn::Set(kF32, -127.0f)), hn::Set(kF32, 127.0f));
    return RoundToInteger(q).integer;
  }

 private:
  VF inverse_;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
