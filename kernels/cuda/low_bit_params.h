// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The parameters of the CUDA kernels for low-bit packets. The rules of params.h apply.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/low_bit.h"
#include "kernels/types.h"

namespace onebit::kernels::cuda {

// A run of elements with a low-bit packet, or a part of one, of its own. Members that Piece has,
// too, are the same.
struct LowBitPiece {
  uint64_t count = 0;
  void* values = nullptr;
  const uint8_t* mask = nullptr;
  void* residuals[2] = {nullptr, nullptr};
  // Name the generation to read, and count the blocks that are not finite. Null: generation 0.
  CompressorWords* words = nullptr;
  // Null without error feedback: values that are not finite then concern their blocks only.
  uint32_t* faults = nullptr;
  const uint32_t* decision = nullptr;
  // The packet that is made or decoded. Reduce and average: the packet of rank 0, and this rank's
  // own, which lies elsewhere; that of rank r is r * stride behind. All begin at a multiple of 2
  // bytes.
  std::byte* packet = nullptr;
  const std::byte* source = nullptr;
  const std::byte* own_source = nullptr;
  // The position of the piece in each of them: that of its first element, whose code begins at a
  // byte, and that of its first scale among all scales of the packet.
  uint64_t element = 0;
  uint32_t scale = 0;
  uint32_t scale_count = 0;
  uint32_t first_tile = 0;
  // For stochastic rounding. Their epoch is that of `words`, if there are any.
  Draws draws;
};

// The most pieces that fit into the parameters of a launch.
inline constexpr unsigned kMaxLowBitPieces = 224;

template <unsigned kPieces>
struct LowBitPieceListOf {
  uint32_t count = 0;
  uint32_t tiles = 0;
  LowBitPiece pieces[kPieces];
};
using LowBitPieceList = LowBitPieceListOf<kMaxLowBitPieces>;

// All of the kernels below set kNonfinite in *faults where LowBitResult::is_finite would be false,
// and add its nonfinite_blocks to those of `words`.

// kLowBitCompress: LowBitCompress of every piece; a tile is a block. The piece with the last scale
//   of a packet also clears the padding behind it.
struct LowBitCompressKind {
  LowBitCodec codec = LowBitCodec::kFp4;
  DataType input_type = DataType::kF32;
  DataType value_type = DataType::kF32;  // to which the values behind a residual are rounded
  DataType residual_type = DataType::kF32;
  bool keeps_residual = true;  // false: it is read, and the new residual is not stored
  uint32_t block = 1;
  bool operator==(const LowBitCompressKind&) const = default;
};
template <unsigned kPieces>
struct LowBitCompressParamsOf : LowBitCompressKind {
  LowBitPieceListOf<kPieces> list;
};
using LowBitCompressParams = LowBitCompressParamsOf<kMaxLowBitPieces>;

// kLowBitReduce: LowBitReduce of every piece, otherwise as kLowBitCompress.
// kLowBitAverage: LowBitAverage of every piece.
struct LowBitReduceKind {
  LowBitCodec codec = LowBitCodec::kFp4;
  uint64_t stride = 0;  // bytes between the packets of ranks
  uint32_t rank = 0;
  uint32_t ranks = 1;
  DataType output_type = DataType::kF32;
  DataType residual_type = DataType::kF32;
  PacketTerms terms;
  uint32_t block = 1;
  bool operator==(const LowBitReduceKind&) const = default;
};
template <unsigned kPieces>
struct LowBitReduceParamsOf : LowBitReduceKind {
  LowBitPieceListOf<kPieces> list;
};
using LowBitReduceParams = LowBitReduceParamsOf<kMaxLowBitPieces>;

// kLowBitDecode: LowBitDecode of every piece.
// kLowBitAddDelta: LowBitAddDelta of every piece; the held values are its residual, in fp32.
struct LowBitDecodeKind {
  LowBitCodec codec = LowBitCodec::kFp4;
  DataType output_type = DataType::kF32;
  uint32_t block = 1;
  bool operator==(const LowBitDecodeKind&) const = default;
};
template <unsigned kPieces>
struct LowBitDecodeParamsOf : LowBitDecodeKind {
  LowBitPieceListOf<kPieces> list;
};
using LowBitDecodeParams = LowBitDecodeParamsOf<kMaxLowBitPieces>;

}  // namespace onebit::kernels::cuda
