// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of low-bit block codecs: numbers to small codes and a scale per block, and back
// (src/codec/FORMAT.md, section 15). Same contract as kernels.h: pure functions, `reference` and
// `cpu` with equal results to the bit, the same rules on masks, alignment, aliasing and the
// floating-point environment.
//
// Rules of these codecs
//   * Element i has the bits [i * b, (i + 1) * b) of a little-endian string, b = CodeBits(codec);
//     the unused bits of the last byte are written as 0. Blocks start at element 0 of the piece
//     that is passed in. A block may have any length whose codes fill whole bytes.
//   * Scales and minimums are bf16.
//   * z = input + residual_in. A block is not finite if one of its z is not, or has a magnitude of
//     2^127 or more, or if its scale would exceed 2^126. Its scale is then NaN (0x7fc0), its
//     minimum and its codes are 0, its residual is unspecified, and it decodes to NaN. Elements
//     outside the mask decode to 0 even there.
//   * Fused multiply-add gives the same bits: products of a code's value and a scale are exact.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace onebit::kernels {

enum class LowBitCodec : uint8_t {
  kFp4,             // +-{0, .5, 1, 1.5, 2, 3, 4, 6} times max |z| / 6
  kInt8,            // -127 ... 127 times max |z| / 127, nearest
  kUint8,           // min z + (0 ... 255) times (max z - min z) / 255
  kInt2,            // (-1.5, -.5, .5, 1.5) times the root mean square
  kInt8Stochastic,  // kInt8, rounded up or down at random so that the mean is exact
};

constexpr size_t CodeBits(LowBitCodec codec) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return 4;
    case LowBitCodec::kInt2:
      return 2;
    case LowBitCodec::kInt8:
    case LowBitCodec::kUint8:
    case LowBitCodec::kInt8Stochastic:
      return 8;
  }
  return 8;
}
constexpr size_t CodeBytes(LowBitCodec codec, size_t element_count) {
  return (element_count * CodeBits(codec) + 7) / 8;
}
constexpr bool HasMinimum(LowBitCodec codec) { return codec == LowBitCodec::kUint8; }

// A packet in one piece of memory has all scales, all minimums, padding, and the codes from a
// multiple of kCodeAlignment on.
inline constexpr size_t kCodeAlignment = 16;
constexpr size_t UsedScaleBytes(LowBitCodec codec, size_t scale_count) {
  return scale_count * sizeof(uint16_t) * (HasMinimum(codec) ? 2 : 1);
}
constexpr size_t ScaleBytes(LowBitCodec codec, size_t scale_count) {
  return (UsedScaleBytes(codec, scale_count) + kCodeAlignment - 1) / kCodeAlignment *
         kCodeAlignment;
}

struct LowBitFormat {
  LowBitCodec codec = LowBitCodec::kFp4;
  size_t block = 128;  // at least 1; block * CodeBits is a multiple of 8
};

// Counter of the random numbers of kInt8Stochastic (Philox4x32-10, FORMAT.md section 15): with
// i = first + index in the piece, the draw of an element is word i mod 4 of the counter
// (lo32(i >> 2), i >> 34, epoch, tensor) under the key (lo32(seed), hi32(seed) XOR stream).
struct Draws {
  uint64_t seed = 0;
  uint64_t first = 0;
  uint32_t epoch = 0;
  uint32_t tensor = 0;
  uint32_t stream = 0;
};

// A packet in memory, by its parts. Minimums are null if the codec has none.
struct LowBitPacket {
  uint16_t* scales = nullptr;
  uint16_t* minimums = nullptr;
  uint8_t* codes = nullptr;
};
struct LowBitPacketView {
  const uint16_t* scales = nullptr;
  const uint16_t* minimums = nullptr;
  const uint8_t* codes = nullptr;
};

// Input of the server side: the packets of all ranks for one piece, in rank order.
//   y = (v_0 + v_1) + ...  left to right in fp32, divided by `ranks` in fp32 unless is_sum;
//   y = y + residual_in, if there is a residual.
struct LowBitReduceInput {
  const LowBitPacketView* packets = nullptr;  // [ranks]
  size_t ranks = 0;
  const void* residual_in = nullptr;  // null without error feedback
  void* residual_out = nullptr;
  DataType residual_type = DataType::kF32;
  const uint8_t* mask = nullptr;
  size_t count = 0;
  DataType output_type = DataType::kF32;
  bool is_sum = false;
};

// Copies of values that every rank holds, negated, and the packet of differences that changes them.
struct LowBitDeltaInput {
  LowBitPacketView packet;
  const float* held_in = nullptr;  // count elements
  float* held_out = nullptr;       // may equal held_in
  const uint8_t* mask = nullptr;
  size_t count = 0;
  DataType output_type = DataType::kF32;
};

struct LowBitResult {
  // Blocks that are not finite: of those written by a function that compresses, of those read by
  // one that decodes (a block of a sum counts once).
  size_t nonfinite_blocks = 0;
  // False if there is such a block, or if an output or a residual is not finite once it is rounded
  // to its type.
  bool is_finite = true;
};

#define ONEBIT_LOW_BIT_DECLARE                                                                    \
  /* Worker: writes scales, minimums and codes, and residual_out = z - v, where v is the decoded  \
     value rounded to in.scale_type. in.rule is not used. `draws` matters to kInt8Stochastic      \
     only, which has no residual. */                                                              \
  LowBitResult LowBitCompress(const CompressInput& in, LowBitFormat format, const Draws& draws,   \
                              LowBitPacket out);                                                  \
  /* Server: y of all ranks, compressed again; residual_out = y - (v rounded to output_type). */  \
  LowBitResult LowBitReduce(const LowBitReduceInput& in, LowBitFormat format, const Draws& draws, \
                            LowBitPacket out);                                                    \
  /* y of all ranks, without a residual, rounded once to output_type; 0 outside the mask. */      \
  LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output);     \
  /* held_out = held_in - v in fp32, 0 outside the mask; output = 0 - held_out, rounded once. A   \
     null output is not written. */                                                               \
  LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output);     \
  /* output = v rounded once to output_type; 0 outside the mask. */                               \
  LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,           \
                            const uint8_t* mask, DataType output_type, void* output);

ONEBIT_DECLARE_TWICE(ONEBIT_LOW_BIT_DECLARE)

#undef ONEBIT_LOW_BIT_DECLARE

}  // namespace onebit::kernels
