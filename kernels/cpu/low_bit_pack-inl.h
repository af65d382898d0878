// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Packs codes: from one byte each, or from vectors. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Elements whose codes are packed at once from bytes.
inline constexpr size_t kPackGroup = 64;

// x86 with vectors of 256 bits and more packs codes that are in vectors.
#ifndef ONEBIT_PACKS_VECTORS
#define ONEBIT_PACKS_VECTORS (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#endif
// Elements whose codes it packs at once: four vectors.
inline constexpr size_t kVectorGroup = 4 * kLanes;

template <size_t kBits>
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
// Packs `count` codes; `bytes` has room for a whole group more. The unused bits of the last byte
// become 0.
template <LowBitCodec kCodec>
HWY_INLINE void PackCodes(uint8_t* bytes, size_t count, uint8_t* packed) {
  constexpr size_t kBits = CodeBits(kCodec);
  const size_t whole = count / kPackGroup * kPackGroup;
  for (size_t i = 0; i < whole; i += kPackGroup) {
    PackGroup<kBits>(bytes + i, packed + i * kBits / 8);
  }
  if (whole == count) return;
  if constexpr (kBits < 8) memset(bytes + count, 0, 8 / kBits - 1);
  uint8_t last[kPackGroup];
  PackGroup<kBits>(bytes + whole, last);
  memcpy(packed + whole * kBits / 8, last, CodeBytes(kCodec, count - whole));
}

#if HWY_TARGET == HWY_AVX2
// Stores codes of `kBytes` bytes, the lowest of a vector. is_streamed bypasses the caches and needs
// an address that is aligned to them.
template <size_t kBytes>
HWY_INLINE void StoreCodes(__m256i codes, bool is_streamed, uint8_t* packed) {
  const __m128i low = _mm256_castsi256_si128(codes);
  if constexpr (kBytes == 32) {
    if (is_streamed) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(packed), codes);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed), codes);
    }
  } else if constexpr (kBytes == 16) {
    if (is_streamed) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(packed), low);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), low);
    }
  } else {
    static_assert(kBytes == 8);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(packed), low);  // too short to be streamed
  }
}

// Narrows four vectors of codes to bytes, which leaves every four elements together but not in
// order: these come from vectors and their halves 00 10 20 30 01 11 21 31.
template <LowBitCodec kCodec>
HWY_INLINE __m256i NarrowCodes(VU32 a, VU32 b, VU32 c, VU32 d) {
  const __m256i ab = _mm256_packs_epi32(a.raw, b.raw);
  const __m256i cd = _mm256_packs_epi32(c.raw, d.raw);
  return kCodec == LowBitCodec::kUint8 ? _mm256_packus_epi16(ab, cd) : _mm256_packs_epi16(ab, cd);
}

// Packs codes that are bytes in the order of NarrowCodes.
template <size_t kBits>
HWY_INLINE void PackNarrow(__m256i bytes, bool is_streamed, uint8_t* packed) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  if constexpr (kBits == 8) {
    StoreCodes<32>(_mm256_permutevar8x32_epi32(bytes, order), is_streamed, packed);
  } else if constexpr (kBits == 4) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
    const __m256i in_order = _mm256_permutevar8x32_epi32(pairs, order);
    const __m256i narrow = _mm256_packus_epi16(in_order, in_order);
    StoreCodes<16>(_mm256_permute4x64_epi64(narrow, 0x08), is_streamed, packed);
  } else {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x0401));
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));
    const __m256i in_order = _mm256_permutevar8x32_epi32(fours, order);
    const __m256i lowest = _mm256_shuffle_epi8(in_order, _mm256_set1_epi32(0x0C080400));
    const __m256i halves = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    StoreCodes<8>(_mm256_permutevar8x32_epi32(lowest, halves), is_streamed, packed);
  }
}

// Packs four vectors of codes.
template <LowBitCodec kCodec>
HWY_INLINE void PackVectors(VU32 a, VU32 b, VU32 c, VU32 d, bool is_streamed, uint8_t* packed) {
  PackNarrow<CodeBits(kCodec)>(NarrowCodes<kCodec>(a, b, c, d), is_streamed, packed);
}
#endif

#if HWY_TARGET == HWY_AVX3
// Narrows four vectors of codes to bytes, which leaves every four elements together but not in
// order: these come from vectors and their quarters 00 10 20 30 01 11 ...
template <LowBitCodec kCodec>
HWY_INLINE __m512i NarrowCodes(VU32 a, VU32 b, VU32 c, VU32 d) {
  const __m512i ab = _mm512_packs_epi32(a.raw, b.raw);
  const __m512i cd = _mm512_packs_epi32(c.raw, d.raw);
  return kCodec == LowBitCodec::kUint8 ? _mm512_packus_epi16(ab, cd) : _mm512_packs_epi16(ab, cd);
}

// Packs 64 codes of 4 bits, which are words.
HWY_INLINE void PackWords(__m512i a, __m512i b, bool is_streamed, uint8_t* packed) {
  const __m512i bytes = _mm512_packus_epi16(a, b);  // eights of a, b, a, ...
  const __m512i pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x1001));
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256i codes = _mm256_permutexvar_epi32(order, _mm512_cvtepi16_epi8(pairs));
  if (is_streamed) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(packed), codes);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed), codes);
  }
}

// Packs four vectors of codes. is_streamed bypasses the caches and needs an address that is aligned
// to what is written.
template <LowBitCodec kCodec>
HWY_INLINE void PackVectors(VU32 a, VU32 b, VU32 c, VU32 d, bool is_streamed, uint8_t* packed) {
  constexpr size_t kBits = CodeBits(kCodec);
  const __m512i bytes = NarrowCodes<kCodec>(a, b, c, d);
  if constexpr (kBits == 8) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i codes = _mm512_permutexvar_epi32(order, bytes);
    if (is_streamed) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(packed), codes);
    } else {
      _mm512_storeu_si512(packed, codes);
    }
  } else if constexpr (kBits == 4) {
    const __m512i pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x1001));
    const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i codes = _mm256_permutexvar_epi16(order, _mm512_cvtepi16_epi8(pairs));
    if (is_streamed) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(packed), codes);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed), codes);
    }
  } else {
    const __m512i pairs = _mm512_maddubs_epi16(bytes, _mm512_set1_epi16(0x0401));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i codes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(fours), order);
    if (is_streamed) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(packed), codes);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), codes);
    }
  }
}
#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
