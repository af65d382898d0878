// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sparse codecs, which send k elements of each block and nothing of the others
// (src/codec/FORMAT.md, section 18). Same contract as kernels.h: pure functions, `reference` and
// `cpu` with equal results to the bit, the same rules on masks, alignment, aliasing and the
// floating-point environment.
//
// Rules of these codecs
//   * A packet is one piece of memory with the magnitudes, indices and values of all blocks, and
//     the padding between them. It may begin at any byte. Blocks start at element 0 of the piece.
//   * z = input + ef_decay * residual_in, with the product rounded to fp32. Of a block with l
//     elements SelectedOfBlock(l) are sent: those of largest magnitude, or those with the smallest
//     draws. Among equals the lower index comes first; elements outside the mask come last, and
//     their values are sent as 0.
//   * A block is not finite if one of its z is not, or has a magnitude of 2^127 or more. All its
//     elements then count as equally large, and the values that are sent are NaN.
//   * residual_out = z - v for elements that are sent with the value v, otherwise z. It is
//     unspecified in a block that is not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/low_bit.h"

namespace onebit::kernels {

enum class SparseValues : uint8_t {
  kF32,           // as they are
  kTwoMagnitudes  // the sign, and one of two bf16 magnitudes of the block
};

struct SparseCodec {
  uint16_t k = 0;  // elements sent of a whole block, at most its length
  SparseValues values = SparseValues::kTwoMagnitudes;
  bool is_random = false;    // elements are selected by draws, so that packets have no indices
  bool is_unbiased = false;  // results are multiplied by (elements / sent elements) of the block

  friend bool operator==(const SparseCodec&, const SparseCodec&) = default;
};

inline constexpr size_t kMaxSparseBlock = 4096;
inline constexpr size_t kSparseIndexBits = 12;
inline constexpr size_t kSparseMagnitudeBytes = 2 * sizeof(uint16_t);  // high and low, of a block
// Each part of a packet begins at a multiple of this.
inline constexpr size_t kSparseAlignment = 16;

// Elements that are drawn are the same on every rank.
inline constexpr uint32_t kSharedStream = 0xffff'ffffu;

struct SparseFormat {
  SparseCodec codec;
  size_t block = kMaxSparseBlock;

  constexpr size_t SelectedOfBlock(size_t length) const {
    return (codec.k * length + block - 1) / block;
  }
  // Counts the elements that are sent of a piece.
  constexpr size_t Selected(size_t count) const {
    return count / block * codec.k + SelectedOfBlock(count % block);
  }
  // An unbiased codec multiplies results by this: elements of a block for each that is sent.
  constexpr float Factor(size_t length) const {
    return static_cast<float>(length) / static_cast<float>(SelectedOfBlock(length));
  }
  constexpr size_t MagnitudeBytes(size_t count) const {
    return codec.values == SparseValues::kF32 ? 0
                                              : BlockCount(count, block) * kSparseMagnitudeBytes;
  }
  constexpr size_t IndexBytes(size_t count) const {
    return codec.is_random ? 0 : BitBytes(Selected(count) * kSparseIndexBits);
  }
  constexpr size_t ValueBits() const { return codec.values == SparseValues::kF32 ? 32 : 2; }
  constexpr size_t ValueBytes(size_t count) const {
    return BitBytes(Selected(count) * ValueBits());
  }
  // The parts of a packet.
  constexpr size_t IndexOffset(size_t count) const { return Align(MagnitudeBytes(count)); }
  constexpr size_t ValueOffset(size_t count) const {
    return IndexOffset(count) + Align(IndexBytes(count));
  }
  constexpr size_t Bytes(size_t count) const { return ValueOffset(count) + ValueBytes(count); }

  friend bool operator==(const SparseFormat&, const SparseFormat&) = default;

 private:
  static constexpr size_t Align(size_t bytes) {
    return (bytes + kSparseAlignment - 1) / kSparseAlignment * kSparseAlignment;
  }
};

// Input of the server side: the packets of all ranks for one piece, in rank order.
//   y = ((0 + v_0) + v_1) + ...  in fp32, where v is 0 for elements that a rank did not send;
//   y = y / ranks in fp32 unless is_sum;  y = y + residual_in, if there is a residual.
struct SparseReduceInput {
  const void* const* packets = nullptr;  // [ranks]
  size_t ranks = 0;
  const void* residual_in = nullptr;  // null without error feedback
  void* residual_out = nullptr;
  DataType residual_type = DataType::kF32;
  const uint8_t* mask = nullptr;
  size_t count = 0;
  DataType output_type = DataType::kF32;
  bool is_sum = false;
};

using SparseResult = LowBitResult;

#define ONEBIT_SPARSE_DECLARE                                                                      \
  /* Worker: writes format.Bytes(in.count) bytes, and residual_out with v rounded to               \
     in.scale_type. in.rule is not used. `draws` matters to codecs that select at random only. */  \
  SparseResult SparseCompress(const CompressInput& in, float ef_decay, SparseFormat format,        \
                              const Draws& draws, void* packet);                                   \
  /* Server: y of all ranks, compressed again; residual_out = y - (v rounded to output_type). */   \
  SparseResult SparseReduce(const SparseReduceInput& in, SparseFormat format, const Draws& draws,  \
                            void* packet);                                                         \
  /* y of all ranks, without a residual, times the factor of an unbiased codec, rounded once to    \
     output_type; 0 outside the mask. Indices must be below the length of their block. */          \
  SparseResult SparseAverage(const SparseReduceInput& in, SparseFormat format, const Draws& draws, \
                             void* output);

ONEBIT_DECLARE_TWICE(ONEBIT_SPARSE_DECLARE)

#undef ONEBIT_SPARSE_DECLARE

}  // namespace onebit::kernels
