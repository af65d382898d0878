// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The passes of codec_perf_ceiling.h, compiled once per instruction set (by the including file's
// options).
#pragma once

#include "codec_perf_ceiling.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace onebit::perf {
namespace {

constexpr size_t kF32 = 32;  // lines per group
constexpr size_t kHalf = 16;
constexpr size_t kBits = 1;

constexpr Traffic TrafficOf(Shape shape) {
  switch (shape) {
    case Shape::kCompressF32:
      return {2, {kF32, kF32}, 2, {kF32, kBits}};
    case Shape::kCompressHalf:
      return {2, {kHalf, kF32}, 2, {kF32, kBits}};
    case Shape::kSignF32:
      return {1, {kF32}, 1, {kBits}};
    case Shape::kDecodeF32:
      return {1, {kBits}, 1, {kF32}};
    case Shape::kDecodeHalf:
      return {1, {kBits}, 1, {kHalf}};
    case Shape::kAverage8:
      return {8, {kBits, kBits, kBits, kBits, kBits, kBits, kBits, kBits}, 1, {kF32}};
    case Shape::kServer8:
      return {9, {kBits, kBits, kBits, kBits, kBits, kBits, kBits, kBits, kF32}, 2, {kF32, kBits}};
    case Shape::kDense4:
      return {4, {kF32, kF32, kF32, kF32}, 1, {kF32}};
    case Shape::kRead:
      return {1, {kF32}, 0, {}};
  }
  return {};
}

constexpr size_t kLine = 64;

// The compiler is told that a loaded line is used, so that no arithmetic is needed to keep the
// load.
#if defined(__AVX512F__)
inline void LoadLine(const char* from) {
  const __m512i line = _mm512_load_si512(from);
  asm volatile("" : : "v"(line));
}

template <Store kStore>
void WriteLine(char* to) {
  const __m512i line = _mm512_set1_epi32(1);
  if constexpr (kStore == Store::kStreamed) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
  } else {
    _mm512_store_si512(to, line);
  }
}
#elif defined(__x86_64__)
inline void LoadLine(const char* from) {
  for (size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    const __m128i part = _mm_load_si128(reinterpret_cast<const __m128i*>(from + i));
    asm volatile("" : : "x"(part));
  }
}

template <Store kStore>
void WriteLine(char* to) {
  const __m128i part = _mm_set1_epi32(1);
  for (size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    if constexpr (kStore == Store::kStreamed) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
    } else {
      _mm_store_si128(reinterpret_cast<__m128i*>(to + i), part);
    }
  }
}
#else
inline void LoadLine(const char* from) {
  const auto* words = reinterpret_cast<const volatile uint64_t*>(from);
  for (size_t i = 0; i < kLine / sizeof(uint64_t); ++i) (void)words[i];
}

template <Store>
void WriteLine(char* to) {
  auto* words = reinterpret_cast<volatile uint64_t*>(to);
  for (size_t i = 0; i < kLine / sizeof(uint64_t); ++i) words[i] = 1;
}
#endif

inline void Fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// All buffers advance together: line step of 32 of a group touches an fp32 buffer every time, a
// 16-bit one every second time, bits once.
template <Shape kShape, Store kStore>
void Pass(const TrafficBuffers& buffers, size_t groups) {
  constexpr Traffic kTraffic = TrafficOf(kShape);
  const char* read[Traffic::kMaxBuffers];
  char* write[Traffic::kMaxBuffers];
  for (size_t i = 0; i < kTraffic.read_count; ++i) {
    read[i] = static_cast<const char*>(buffers.read[i]);
  }
  for (size_t i = 0; i < kTraffic.write_count; ++i) write[i] = static_cast<char*>(buffers.write[i]);
  for (size_t group = 0; group < groups; ++group) {
    for (size_t step = 0; step < kF32; step += 4) {
#pragma GCC unroll 9
      for (size_t i = 0; i < kTraffic.read_count; ++i) {
        const size_t lines = kTraffic.read_lines[i];
        for (size_t k = 0; k < 4; ++k) {
          if ((step + k) % (kF32 / lines) == 0) {
            LoadLine(read[i]);
            read[i] += kLine;
          }
        }
      }
#pragma GCC unroll 2
      for (size_t i = 0; i < kTraffic.write_count; ++i) {
        const size_t lines = kTraffic.write_lines[i];
        for (size_t k = 0; k < 4; ++k) {
          if ((step + k) % (kF32 / lines) == 0) {
            // Few lines go the way of ordinary stores in the kernels, too.
            if (lines == kBits) {
              WriteLine<Store::kPlain>(write[i]);
            } else {
              WriteLine<kStore>(write[i]);
            }
            write[i] += kLine;
          }
        }
      }
    }
  }
  if constexpr (kStore == Store::kStreamed) Fence();
}

template <Shape kShape>
CeilingPass PassOf(Store store) {
  return store == Store::kPlain ? &Pass<kShape, Store::kPlain> : &Pass<kShape, Store::kStreamed>;
}

CeilingPass PassOf(Shape shape, Store store) {
  switch (shape) {
    case Shape::kCompressF32:
      return PassOf<Shape::kCompressF32>(store);
    case Shape::kCompressHalf:
      return PassOf<Shape::kCompressHalf>(store);
    case Shape::kSignF32:
      return PassOf<Shape::kSignF32>(store);
    case Shape::kDecodeF32:
      return PassOf<Shape::kDecodeF32>(store);
    case Shape::kDecodeHalf:
      return PassOf<Shape::kDecodeHalf>(store);
    case Shape::kAverage8:
      return PassOf<Shape::kAverage8>(store);
    case Shape::kServer8:
      return PassOf<Shape::kServer8>(store);
    case Shape::kDense4:
      return PassOf<Shape::kDense4>(store);
    case Shape::kRead:
      return PassOf<Shape::kRead>(store);
  }
  return nullptr;
}

}  // namespace
}  // namespace onebit::perf
