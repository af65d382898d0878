// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Vectors of fp32: loading and storing element types, and packed bits as masks. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_VECTORS_INL_H_
#undef ONEBIT_KERNELS_CPU_VECTORS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU32 = hn::RebindToUnsigned<DF>;
using DI32 = hn::RebindToSigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;
using MF = hn::Mask<DF>;

inline constexpr DF kF32{};
inline constexpr DU32 kU32{};
inline constexpr DI32 kI32{};
inline constexpr DU16 kU16{};

inline constexpr size_t kLanes = hn::MaxLanes(DF());
static_assert(kLanes == 1 || (kLanes >= 4 && kLanes <= 16), "see targets.h");

// ---- Element types

template <DataType kType>
using ElementOf = std::conditional_t<kType == DataType::kF32, float, uint16_t>;

HWY_INLINE VF F32FromBf16(VU16 half) {
  return hn::BitCast(kF32, hn::ShiftLeft<16>(hn::PromoteTo(kU32, half)));
}

HWY_INLINE VF F32FromF16(VU16 half) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::PromoteTo(kF32, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
#else
  // Moves exponent and mantissa to their fp32 positions, and corrects the bias by a multiplication,
  // which is exact and normalises subnormals. Infinity and NaN then still lack exponent bits.
  const VU32 wide = hn::PromoteTo(kU32, half);
  const VU32 magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(kU32, 0x7FFF)));
  const VF scaled = hn::Mul(hn::BitCast(kF32, magnitude), hn::Set(kF32, 0x1p112f));
  const auto is_finite = hn::Lt(scaled, hn::Set(kF32, 0x1p16f));  // false for NaN
  const VU32 special = hn::Or(magnitude, hn::Set(kU32, 0x7F800000));
  const VF absolute = hn::IfThenElse(is_finite, scaled, hn::BitCast(kF32, special));
  const VU32 sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(kU32, 0x8000)));
  return hn::Or(absolute, hn::BitCast(kF32, sign));
#endif
}

// Loads elements i, i + 1, ... of `array`.
template <DataType kType>
HWY_INLINE VF LoadF32(const void* array, size_t i) {
  if constexpr (kType == DataType::kF32) {
    return hn::LoadU(kF32, static_cast<const float*>(array) + i);
  } else {
    const VU16 half = hn::LoadU(kU16, static_cast<const uint16_t*>(array) + i);
    return kType == DataType::kF16 ? F32FromF16(half) : F32FromBf16(half);
  }
}

// The lanes with a > b, if both are below 2^31.
HWY_INLINE hn::Mask<DU32> IsAbove(VU32 a, uint32_t b) {
  return hn::RebindMask(kU32, hn::Gt(hn::BitCast(kI32, a), hn::Set(kI32, static_cast<int32_t>(b))));
}

// Rounds to nearest even with integers: Highway's own conversions differ between targets.
HWY_INLINE VU32 Bf16BitsOf(VF value) {
  const VU32 bits = hn::BitCast(kU32, value);
  const VU32 upper = hn::ShiftRight<16>(bits);
  const VU32 odd = hn::And(upper, hn::Set(kU32, 1));
  const VU32 rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(kU32, 0x7FFF)), odd));
  const VU32 quiet_nan = hn::Or(upper, hn::Set(kU32, 0x40));
  const VU32 magnitude = hn::And(bits, hn::Set(kU32, 0x7FFFFFFF));
  return hn::IfThenElse(IsAbove(magnitude, 0x7F800000), quiet_nan, rounded);
}

// The smallest bf16 that is not below `value`, which is neither negative nor NaN.
HWY_INLINE VU32 Bf16BitsAtLeast(VF value) {
  return hn::ShiftRight<16>(hn::Add(hn::BitCast(kU32, value), hn::Set(kU32, 0xFFFF)));
}

HWY_INLINE VU32 F16BitsOf(VF value) {
  const VU32 bits = hn::BitCast(kU32, value);
  const VU32 magnitude = hn::And(bits, hn::Set(kU32, 0x7FFFFFFF));
  const VU32 sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const VF absolute = hn::BitCast(kF32, magnitude);
  // Normal: rebase the exponent and round off 13 bits; a carry into the exponent gives the right
  // result.
  const VU32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(kU32, 1));
  const VU32 bias = hn::Set(kU32, 0xFFFu - ((127u - 15u) << 23));
  const VU32 normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, bias), odd));
  // Below 2^-14: adding 0.5 shifts the value to units of 2^-24 at the end of the mantissa, and the
  // addition rounds correctly.
  const VF half = hn::Set(kF32, 0.5f);
  const VU32 subnormal =
      hn::Sub(hn::BitCast(kU32, hn::Add(absolute, half)), hn::BitCast(kU32, half));
  const VU32 payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(kU32, 0x3FF));
  VU32 result = hn::IfThenElse(IsAbove(magnitude, 0x387FFFFF), normal, subnormal);
  result = hn::IfThenElse(IsAbove(magnitude, 0x477FFFFF), hn::Set(kU32, 0x7C00), result);
  result = hn::IfThenElse(IsAbove(magnitude, 0x7F800000), hn::Or(payload, hn::Set(kU32, 0x7E00)),
                          result);
  return hn::Or(result, sign);
}

// A vector must hold 16 bytes to be streamed.
template <DataType kType>
inline constexpr bool kCanStream = kLanes * sizeof(ElementOf<kType>) >= HWY_STREAM_MULTIPLE;

// Stores to element i. kStream bypasses the caches and needs an address aligned to the vector.
template <DataType kType, bool kStream = false>
HWY_INLINE void StoreF32As(VF value, void* array, size_t i) {
  if constexpr (kType == DataType::kF32) {
    float* to = static_cast<float*>(array) + i;
    if constexpr (kStream && kCanStream<kType>) {
      hn::Stream(value, kF32, to);
    } else {
      hn::StoreU(value, kF32, to);
    }
  } else {
    const VU32 bits = kType == DataType::kF16 ? F16BitsOf(value) : Bf16BitsOf(value);
    const VU16 half = hn::TruncateTo(kU16, bits);
    uint16_t* to = static_cast<uint16_t*>(array) + i;
    if constexpr (kStream && kCanStream<kType>) {
      hn::Stream(half, kU16, to);
    } else {
      hn::StoreU(half, kU16, to);
    }
  }
}

// Returns `value` as rounded when it is stored as `type`.
inline float RoundTo(DataType type, float value) {
  const VF wide = hn::Set(kF32, value);
  switch (type) {
    case DataType::kF32:
      return value;
    case DataType::kF16:
      return hn::GetLane(F32FromF16(hn::TruncateTo(kU16, F16BitsOf(wide))));
    case DataType::kBf16:
      return hn::GetLane(F32FromBf16(hn::TruncateTo(kU16, Bf16BitsOf(wide))));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return 0;
}

// Determines if values are finite once they are rounded to a type: magnitudes order like their
// bits, with NaN above infinity.
template <DataType kType>
class LargestMagnitude {
 public:
  // Defined explicitly: a generated constructor is not compiled for the target.
  HWY_INLINE LargestMagnitude() : largest_(hn::Zero(kI32)) {}
  HWY_INLINE void Add(VF value) {
    const auto magnitude = hn::And(hn::BitCast(kI32, value), hn::Set(kI32, 0x7FFFFFFF));
    largest_ = hn::Max(largest_, magnitude);
  }
  bool IsFinite() const {
    alignas(64) int32_t lanes[kLanes];
    hn::Store(largest_, kI32, lanes);
    // The smallest magnitude that rounds to infinity.
    constexpr int32_t kInfinite = kType == DataType::kF32   ? 0x7F800000
                                  : kType == DataType::kF16 ? 0x477FF000
                                                            : 0x7F7F8000;
    for (const int32_t lane : lanes) {
      if (lane >= kInfinite) return false;
    }
    return true;
  }

 private:
  hn::Vec<DI32> largest_;
};

// ---- Packed bits

// Bytes that Highway may touch beyond the meaningful bits.
inline constexpr size_t kBitPadding = 8;

// The lanes whose bits i, i + 1, ... are set; i is a multiple of the lanes of D. kBitPadding bytes
// from byte i / 8 on must be readable.
template <class D>
HWY_INLINE hn::Mask<D> MaskOfBits(D d, const uint8_t* bits, size_t i) {
  if constexpr (hn::MaxLanes(D()) >= 8) {
    return hn::LoadMaskBits(d, bits + i / 8);
  } else {
    const uint8_t part[kBitPadding] = {static_cast<uint8_t>(bits[i / 8] >> (i % 8))};
    return hn::LoadMaskBits(d, part);
  }
}
HWY_INLINE MF MaskOfBits(const uint8_t* bits, size_t i) { return MaskOfBits(kF32, bits, i); }

// Converts the mask to bits, lane 0 lowest.
HWY_INLINE uint64_t BitsOf(MF mask) {
  uint8_t bytes[kBitPadding];
  hn::StoreMaskBits(kF32, mask, bytes);
  uint16_t bits = bytes[0];
  if constexpr (kLanes > 8) memcpy(&bits, bytes, sizeof(bits));
  return bits & ((1u << kLanes) - 1);
}

// Writes the mask as bits i, i + 1, ... and touches no other byte; calls must be in ascending
// order.
HWY_INLINE void WriteBitsOf(MF mask, size_t i, uint8_t* bits) {
  if constexpr (kLanes >= 8) {
    const uint64_t word = BitsOf(mask);
    memcpy(bits + i / 8, &word, kLanes / 8);
  } else {
    // A byte holds the bits of several vectors.
    const uint64_t before = i % 8 == 0 ? 0 : bits[i / 8];
    bits[i / 8] = static_cast<uint8_t>(before | (BitsOf(mask) << (i % 8)));
  }
}

// True if 8 bytes can be read from any byte of the bits [0, end) when `bit_count` bits are
// readable.
constexpr bool HasBitPadding(size_t end, size_t bit_count) {
  return BitBytes(end) + kBitPadding - 1 <= BitBytes(bit_count);
}

// Copies `bit_count` bits and sets the following ones, padding included, to 0.
HWY_INLINE void CopyBitsPadded(const uint8_t* from, size_t bit_count, uint8_t* to) {
  const size_t bytes = BitBytes(bit_count);
  if (bytes != 0) memcpy(to, from, bytes);
  memset(to + bytes, 0, kBitPadding);
  if (bit_count % 8 != 0) to[bytes - 1] &= static_cast<uint8_t>((1u << (bit_count % 8)) - 1);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
