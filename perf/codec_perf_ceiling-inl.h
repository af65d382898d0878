// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The passes of codec_perf_ceiling.h, compiled once per instruction set (by the including file's
// options).
#pragma once

#include <type_traits>
#include <utility>

#include "perf/codec_perf_ceiling.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace onebit::perf {
namespace {

constexpr size_t kF32 = 32;  // lines per group
constexpr size_t kHalf = 16;
constexpr size_t kBits = 1;
constexpr size_t kCodes2 = 2;
constexpr size_t kCodes4 = 4;
constexpr size_t kCodes8 = 8;

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
    case Shape::kCompress4:
      return {1, {kF32}, 1, {kCodes4}};
    case Shape::kCompress8:
      return {1, {kF32}, 1, {kCodes8}};
    case Shape::kEfCompress4:
      return {2, {kF32, kF32}, 2, {kF32, kCodes4}};
    case Shape::kEfCompress2:
      return {2, {kF32, kF32}, 2, {kF32, kCodes2}};
    case Shape::kDecode4:
      return {1, {kCodes4}, 1, {kF32}};
    case Shape::kDecode8:
      return {1, {kCodes8}, 1, {kF32}};
    case Shape::kDecode2:
      return {1, {kCodes2}, 1, {kF32}};
    case Shape::kAverage8Of4:
      return {
          8, {kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4}, 1, {kF32}};
    case Shape::kAverage8Of8:
      return {
          8, {kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8}, 1, {kF32}};
    case Shape::kAverage8Of2:
      return {
          8, {kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2}, 1, {kF32}};
    case Shape::kReduce8Of4:
      return {8,
              {kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4, kCodes4},
              1,
              {kCodes4}};
    case Shape::kReduce8Of8:
      return {8,
              {kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8, kCodes8},
              1,
              {kCodes8}};
    case Shape::kEfReduce8Of2:
      return {9,
              {kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kCodes2, kF32},
              2,
              {kF32, kCodes2}};
    case Shape::kUpdate:
      return {2, {kF32, kF32}, 1, {kF32}};
    case Shape::kServerUpdate:
      return {1, {kF32}, 1, {kF32}};
    case Shape::kWrite:
      return {0, {}, 1, {kF32}};
    case Shape::kCopyHalf:
      return {1, {kHalf}, 1, {kHalf}};
  }
  return {};
}

constexpr size_t kLine = 64;

enum class Store { kPlain, kStreamed };

// An empty asm statement claims to use the loaded line, so the load survives without arithmetic.
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

// True if a buffer with this many lines per group has a line at `step`, 0 to 31.
constexpr bool HasLine(size_t lines, size_t step) { return step % (kF32 / lines) == 0; }

constexpr size_t kFetchAhead = 4096;

template <size_t kLines, size_t kStep, bool kFetch>
void ReadStep(const char*& from) {
  if constexpr (HasLine(kLines, kStep)) {
    // May point beyond the buffer.
    if constexpr (kFetch) {
      __builtin_prefetch(
          reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(from) + kFetchAhead));
    }
    LoadLine(from);
    from += kLine;
  }
}

template <size_t kLines, size_t kStep, Store kStore>
void WriteStep(char*& to) {
  if constexpr (HasLine(kLines, kStep)) {
    // The kernels also use ordinary stores if there are only a few lines.
    WriteLine<kLines == kBits ? Store::kPlain : kStore>(to);
    to += kLine;
  }
}

template <Shape kShape>
constexpr Traffic kTraffic = TrafficOf(kShape);

// All buffers advance together, line by line: the order in which memory was found to be fastest.
template <Shape kShape, Store kStore, bool kFetch>
void Pass(const TrafficBuffers& buffers, size_t groups) {
  const char* read[Traffic::kMaxBuffers];
  char* write[Traffic::kMaxBuffers];
  for (size_t i = 0; i < Traffic::kMaxBuffers; ++i) {
    read[i] = static_cast<const char*>(buffers.read[i]);
    write[i] = static_cast<char*>(buffers.write[i]);
  }
  const auto take_step = [&]<size_t kStep, size_t... kRead, size_t... kWrite>(
      std::integral_constant<size_t, kStep>, std::index_sequence<kRead...>,
      std::index_sequence<kWrite...>) {
    (ReadStep<kTraffic<kShape>.read_lines[kRead], kStep, kFetch>(read[kRead]), ...);
    (WriteStep<kTraffic<kShape>.write_lines[kWrite], kStep, kStore>(write[kWrite]), ...);
  };
  const auto take_group = [&]<size_t... kStep>(std::index_sequence<kStep...>) {
    (take_step(std::integral_constant<size_t, kStep>(),
               std::make_index_sequence<kTraffic<kShape>.read_count>(),
               std::make_index_sequence<kTraffic<kShape>.write_count>()),
     ...);
  };
  for (size_t group = 0; group < groups; ++group) take_group(std::make_index_sequence<kF32>());
  if constexpr (kStore == Store::kStreamed) Fence();
}

template <Shape kShape>
CeilingPasses PassesOf() {
  return {&Pass<kShape, Store::kPlain, false>, &Pass<kShape, Store::kStreamed, false>,
          &Pass<kShape, Store::kStreamed, true>};
}

CeilingPasses PassesOf(Shape shape) {
  switch (shape) {
    case Shape::kCompressF32:
      return PassesOf<Shape::kCompressF32>();
    case Shape::kCompressHalf:
      return PassesOf<Shape::kCompressHalf>();
    case Shape::kSignF32:
      return PassesOf<Shape::kSignF32>();
    case Shape::kDecodeF32:
      return PassesOf<Shape::kDecodeF32>();
    case Shape::kDecodeHalf:
      return PassesOf<Shape::kDecodeHalf>();
    case Shape::kAverage8:
      return PassesOf<Shape::kAverage8>();
    case Shape::kServer8:
      return PassesOf<Shape::kServer8>();
    case Shape::kDense4:
      return PassesOf<Shape::kDense4>();
    case Shape::kRead:
      return PassesOf<Shape::kRead>();
    case Shape::kCompress4:
      return PassesOf<Shape::kCompress4>();
    case Shape::kCompress8:
      return PassesOf<Shape::kCompress8>();
    case Shape::kEfCompress4:
      return PassesOf<Shape::kEfCompress4>();
    case Shape::kEfCompress2:
      return PassesOf<Shape::kEfCompress2>();
    case Shape::kDecode4:
      return PassesOf<Shape::kDecode4>();
    case Shape::kDecode8:
      return PassesOf<Shape::kDecode8>();
    case Shape::kDecode2:
      return PassesOf<Shape::kDecode2>();
    case Shape::kAverage8Of4:
      return PassesOf<Shape::kAverage8Of4>();
    case Shape::kAverage8Of8:
      return PassesOf<Shape::kAverage8Of8>();
    case Shape::kAverage8Of2:
      return PassesOf<Shape::kAverage8Of2>();
    case Shape::kReduce8Of4:
      return PassesOf<Shape::kReduce8Of4>();
    case Shape::kReduce8Of8:
      return PassesOf<Shape::kReduce8Of8>();
    case Shape::kEfReduce8Of2:
      return PassesOf<Shape::kEfReduce8Of2>();
    case Shape::kUpdate:
      return PassesOf<Shape::kUpdate>();
    case Shape::kServerUpdate:
      return PassesOf<Shape::kServerUpdate>();
    case Shape::kWrite:
      return PassesOf<Shape::kWrite>();
    case Shape::kCopyHalf:
      return PassesOf<Shape::kCopyHalf>();
  }
  return {};
}

}  // namespace
}  // namespace onebit::perf
