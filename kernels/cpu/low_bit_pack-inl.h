// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Codes in one byte each to packed codes. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Elements whose codes are packed at once.
inline constexpr size_t kPackGroup = 64;

// Packs a group. kStream bypasses the caches and needs an address aligned to 64 bytes, and groups
// that follow each other up to a multiple of 64 bytes.
#if HWY_TARGET == HWY_AVX3
template <size_t kBits, bool kStream>
HWY_INLINE void PackGroup(const uint8_t* bytes, uint8_t* packed) {
  const __m512i codes = _mm512_loadu_si512(bytes);
  if constexpr (kBits == 8) {
    if constexpr (kStream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(packed), codes);
    } else {
      _mm512_storeu_si512(packed, codes);
    }
  } else if constexpr (kBits == 4) {
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    const __m256i narrow = _mm512_cvtepi16_epi8(pairs);
    if constexpr (kStream) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(packed), narrow);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed), narrow);
    }
  } else {
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x0401));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    const __m128i narrow = _mm512_cvtepi32_epi8(fours);
    if constexpr (kStream) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(packed), narrow);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), narrow);
    }
  }
}
#else
template <size_t kBits, bool kStream>
HWY_INLINE void PackGroup(const uint8_t* bytes, uint8_t* packed) {
  if constexpr (kBits == 8) {
    memcpy(packed, bytes, kPackGroup);
    return;
  }
  for (size_t i = 0; i < kPackGroup; i += 8) {
    uint64_t word;
    memcpy(&word, bytes + i, sizeof(word));
    // Moves neighbours together: codes to pairs, pairs to fours, fours to eights.
    word = (word | (word >> (8 - kBits))) & 0x00FF00FF00FF00FFu;
    word = (word | (word >> (16 - 2 * kBits))) & 0x0000FFFF0000FFFFu;
    word |= word >> (32 - 4 * kBits);
    memcpy(packed + i * kBits / 8, &word, kBits);
  }
}
#endif

template <size_t kBits, bool kStream>
HWY_INLINE void PackGroups(const uint8_t* bytes, size_t count, uint8_t* packed) {
  for (size_t i = 0; i < count; i += kPackGroup) {
    PackGroup<kBits, kStream>(bytes + i, packed + i * kBits / 8);
  }
}

// Packs `count` codes; `bytes` is readable up to a whole group. The unused bits of the last byte
// become 0.
template <LowBitCodec kCodec>
HWY_INLINE void PackCodes(uint8_t* bytes, size_t count, uint8_t* packed, bool is_streamed) {
  constexpr size_t kBits = CodeBits(kCodec);
  const size_t whole = count / kPackGroup * kPackGroup;
  const bool is_aligned = reinterpret_cast<uintptr_t>(packed) % 64 == 0;
  if (is_streamed && is_aligned && whole == count && count * kBits / 8 % 64 == 0) {
    PackGroups<kBits, true>(bytes, whole, packed);
    return;
  }
  PackGroups<kBits, false>(bytes, whole, packed);
  if (whole == count) return;
  if constexpr (kBits < 8) memset(bytes + count, 0, 8 / kBits - 1);
  uint8_t last[kPackGroup];
  PackGroup<kBits, false>(bytes + whole, last);
  memcpy(packed + whole * kBits / 8, last, CodeBytes(kCodec, count - whole));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
