// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The limit that memory sets: passes over the same buffers as a kernel, without its arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace onebit::perf {

// The memory traffic of a kernel, per group of 512 elements: 64-byte lines read from and written to
// each of its buffers. fp32 is 32 lines, a 16-bit type 16, packed bits are 1.
struct Traffic {
  static constexpr size_t kMaxBuffers = 9;
  static constexpr size_t kGroupElements = 512;

  size_t read_count = 0;
  size_t read_lines[kMaxBuffers] = {};
  size_t write_count = 0;
  size_t write_lines[kMaxBuffers] = {};
};

struct TrafficBuffers {
  const void* read[Traffic::kMaxBuffers] = {};
  void* write[Traffic::kMaxBuffers] = {};
};

// Touches `groups` groups of every buffer, in step. Buffers are aligned to 64 bytes.
using CeilingPass = void (*)(const TrafficBuffers& buffers, size_t groups);

// The shapes that are measured.
enum class Shape {
  kCompressF32,   // x, e -> e', bits
  kCompressHalf,  // 16-bit x, e -> e', bits
  kSignF32,       // x -> bits
  kDecodeF32,     // bits -> fp32
  kDecodeHalf,    // bits -> 16-bit
  kAverage8,      // 8 bits -> fp32
  kServer8,       // 8 bits, s -> s', bits
  kDense4,        // 4 fp32 -> fp32
  kRead,          // fp32
  // Packed codes of 2, 4 or 8 bits.
  kCompress4,  // x -> codes
  kCompress8,
  kEfCompress4,  // x, e -> e', codes
  kEfCompress2,
  kDecode4,  // codes -> fp32
  kDecode8,
  kDecode2,
  kAverage8Of4,  // 8 codes -> fp32
  kAverage8Of8,
  kAverage8Of2,
  kReduce8Of4,  // 8 codes -> codes
  kReduce8Of8,
  kEfReduce8Of2,  // 8 codes, s -> s', codes
  // Sparse packets are too short to count.
  kUpdate,        // x, e -> e'
  kServerUpdate,  // s -> s'
  kWrite,         // fp32
  kCopyHalf,      // 16-bit -> 16-bit
};

// The passes of a shape for this processor: with plain stores, with non-temporal stores, and with
// non-temporal stores plus prefetch. The fastest counts. Without a large output the first two are
// the same.
using CeilingPasses = std::array<CeilingPass, 3>;
CeilingPasses CeilingPassesOf(Shape shape);

// The same for processors with AVX-512.
CeilingPasses Avx512CeilingPassesOf(Shape shape);

}  // namespace onebit::perf
