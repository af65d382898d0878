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

// What encoding needs of a block's scale. Members are written and read one by one: a processor
// waits where it has to read several at once that were written one by one.
struct BlockScale {
  float scale = 0;
  float minimum = 0;
  float inverse = 0;
  bool is_finite = false;
};

template <LowBitCodec kCodec>
class BlockCoder;

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

// From 1 on, the index of a magnitude is its exponent and the next bit, rounded half away from 0; a
// carry out of the bit gives the next exponent. Smaller magnitudes are taken for 1 there, as index
// 0; then all go up by one if they are at least 1/4, and once more from 3/4 on.
template <>
class BlockCoder<LowBitCodec::kFp4> {
 public:
  HWY_INLINE explicit BlockCoder(const BlockScale& block) : inverse_(hn::Set(kF32, block.inverse)) {
    alignas(32) static constexpr float kUnits[kLanes] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    values_ = hn::Mul(hn::Load(kF32, kUnits), hn::Set(kF32, block.scale));
  }

  HWY_INLINE Coded Encode(VF z) const {
    const VF t = hn::Mul(z, inverse_);
    const __m256i magnitude = _mm256_and_si256(BitsOfLanes(t), _mm256_set1_epi32(0x7FFFFFFF));
    const __m256i at_least_1 = _mm256_max_epi32(magnitude, _mm256_set1_epi32(kOne << 16));
    const __m256i above =
        _mm256_srli_epi32(_mm256_add_epi32(at_least_1, _mm256_set1_epi32(kRoundToIndex << 16)), 22);
    // -1 each.
    const __m256i from_3_4 =
        _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((k3Quarters << 16) - 1));
    const __m256i from_1_4 = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((kQuarter << 16) - 1));
    const __m256i index = _mm256_sub_epi32(_mm256_sub_epi32(above, from_3_4), from_1_4);
    // The sign of a code that is not 0.
    const __m256i sign =
        _mm256_and_si256(from_1_4, _mm256_and_si256(BitsOfLanes(t), _mm256_set1_epi32(INT32_MIN)));
    const __m256 value = _mm256_permutevar8x32_ps(values_.raw, index);
    return {VU32{_mm256_or_si256(index, _mm256_srli_epi32(sign, 28))},
            VF{_mm256_or_ps(value, _mm256_castsi256_ps(sign))}};
  }

  // Codes of two vectors as words, in half the instructions: a code depends on the upper half of a
  // number only. Quarters of 128 bits are of a, b, a, b.
  HWY_INLINE __m256i EncodeToWords(VF a, VF b) const {
    const __m256i t = _mm256_packus_epi32(_mm256_srli_epi32(BitsOfLanes(hn::Mul(a, inverse_)), 16),
                                          _mm256_srli_epi32(BitsOfLanes(hn::Mul(b, inverse_)), 16));
    const __m256i magnitude = _mm256_and_si256(t, _mm256_set1_epi16(0x7FFF));
    const __m256i at_least_1 = _mm256_max_epi16(magnitude, _mm256_set1_epi16(kOne));
    const __m256i above =
        _mm256_srli_epi16(_mm256_add_epi16(at_least_1, _mm256_set1_epi16(kRoundToIndex)), 6);
    const __m256i from_3_4 = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(k3Quarters - 1));
    const __m256i from_1_4 = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(kQuarter - 1));
    const __m256i index = _mm256_sub_epi16(_mm256_sub_epi16(above, from_3_4), from_1_4);
    const __m256i sign = _mm256_and_si256(
        from_1_4, _mm256_and_si256(_mm256_srli_epi16(t, 12), _mm256_set1_epi16(8)));
    return _mm256_or_si256(index, sign);
  }

 private:
  // The upper halves of these numbers.
  static constexpr int16_t kQuarter = 0x3E80, k3Quarters = 0x3F40, kOne = 0x3F80;
  // Rounds half of the last bit of an index, and makes that of 1 to be 0.
  static constexpr int16_t kRoundToIndex = (1 << 5) - kOne;

  static HWY_INLINE __m256i BitsOfLanes(VF values) { return _mm256_castps_si256(values.raw); }

  VF inverse_;
  VF values_;
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
