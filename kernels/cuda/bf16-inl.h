// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers to bf16, and back, in one sweep. Pieces are those of low-bit packets; their codes are two
// bytes each, and there are no scales.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/cuda/low_bit-inl.h"

namespace onebit::kernels::cuda {

// The first `count` elements at element `i` of a packet. Bits of `nonfinite` are set for those that
// are not finite.
ONEBIT_KERNEL Quad<float> Bf16ValuesAt(const LowBitPiece& piece, const std::byte* packet,
                                       uint64_t i, unsigned count, uint32_t* nonfinite) {
  const Input codes = ArrayAt(static_cast<const void*>(packet), DataType::kBf16, piece.element);
  const Quad<float> values = LoadQuad(codes, i, count);
  *nonfinite |= NibbleOf(values, [](float value) { return !IsFinite(value); });
  return values;
}

// The sum of the packets' values by the terms.
ONEBIT_KERNEL Quad<float> Bf16SumsAt(const LowBitReduceKind& kind, const LowBitPiece& piece,
                                     uint64_t i, unsigned count, uint32_t* nonfinite) {
  // Starting from -0 instead of 0 leaves every first term unchanged, including -0.
  Quad<float> sums = {{-0.0f, -0.0f, -0.0f, -0.0f}};
  for (uint32_t rank = 0; rank < kind.ranks; ++rank) {
    const Quad<float> values =
        Bf16ValuesAt(piece, PacketOf(kind, piece, rank), i, count, nonfinite);
    const float factor = kind.terms.factors == nullptr ? 1.0f : kind.terms.factors[rank];
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) sums.at[c] += factor * values.at[c];
  }
  if (kind.terms.divisor == 1) return sums;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) sums.at[c] /= static_cast<float>(kind.terms.divisor);
  return sums;
}

// Compresses the quads of a tile: numbers_at(i, count), and what is kept of them, if anything is.
// `residual` is where their residuals go; data null: nowhere.
template <class NumbersAt>
ONEBIT_KERNEL void EncodeBf16Tile(const Warp& warp, const LowBitTile& tile, DataType value_type,
                                  const Input& kept, const Output& residual,
                                  const NumbersAt& numbers_at) {
  const LowBitPiece& piece = tile.piece;
  const Output codes = ArrayAt(static_cast<void*>(piece.packet), DataType::kBf16, piece.element);
  Lanes<uint32_t> nonfinite;
  Lanes<bool> is_infinite;
  ForEachQuad(warp, tile, [&](unsigned lane, uint64_t i, unsigned count) {
    Quad<float> z = numbers_at(i, count);
    if (kept.data != nullptr) {
      const Quad<float> more = LoadQuad(kept, i, count);
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) z.at[c] += more.at[c];
    }
    const uint32_t part = PartAt(piece.mask, i, count);
    Quad<uint32_t> code;
    Quad<uint32_t> lost;
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      if ((part >> c & 1) == 0) continue;
      code.at[c] = Bf16OfFloat(z.at[c]);
      if (!IsFiniteBf16(code.at[c])) {
        code.at[c] = kBf16Nan;
        ++nonfinite[lane];
      }
      if (residual.data == nullptr) continue;
      const float value = FloatOfBits(DataType::kBf16, code.at[c]);
      const float rounded = FloatOfBits(value_type, BitsOfFloat(value_type, value));
      lost.at[c] = BitsOfFloat(residual.type, z.at[c] - rounded);
      if (!AreBitsFinite(residual.type, lost.at[c])) is_infinite[lane] = true;
    }
    StoreQuadBits(code, codes, i, count);
    if (residual.data != nullptr) StoreQuadBits(lost, residual, i, count);
  });
  CountNonfinite(warp, piece, SumOf(warp, nonfinite));
  if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunBf16Compress(const Warp& warp, const LowBitCompressParamsOf<kPieces>& p) {
  const auto compress = [&](const LowBitTile& tile, const ResidualPair& residual) {
    const Input input = ArrayAt(static_cast<const void*>(tile.piece.values), p.input_type);
    EncodeBf16Tile(warp, tile, p.value_type, ArrayAt(residual.in, p.residual_type),
                   ArrayAt(residual.out, p.residual_type),
                   [&](uint64_t i, unsigned count) { return LoadQuad(input, i, count); });
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, p.keeps_residual, compress);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunBf16Reduce(const Warp& warp, const LowBitReduceParamsOf<kPieces>& p) {
  const auto reduce = [&](const LowBitTile& tile, const ResidualPair& residual) {
    EncodeBf16Tile(warp, tile, p.output_type, ArrayAt(residual.in, p.residual_type),
                   ArrayAt(residual.out, p.residual_type), [&](uint64_t i, unsigned count) {
                     uint32_t nonfinite = 0;  // if one is set, y is not finite
                     return Bf16SumsAt(p, tile.piece, i, count, &nonfinite);
                   });
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, /*keeps_residual=*/true, reduce);
}

// Decodes the quads of a tile: values_at(i, count, &nonfinite) gives their values, and what is not
// finite in packets.
template <class ValuesAt>
ONEBIT_KERNEL void DecodeBf16Tile(const Warp& warp, const LowBitTile& tile, DataType output_type,
                                  const ValuesAt& values_at) {
  const LowBitPiece& piece = tile.piece;
  const Output output = ArrayAt(piece.values, output_type);
  Lanes<uint32_t> nonfinite;
  Lanes<bool> is_infinite;
  ForEachQuad(warp, tile, [&](unsigned lane, uint64_t i, unsigned count) {
    uint32_t bits = 0;
    const Quad<float> values = values_at(i, count, &bits);
    nonfinite[lane] += CountOfNibble(bits);
    StoreValues(values, PartAt(piece.mask, i, count), output, i, count, &is_infinite[lane]);
  });
  CountNonfinite(warp, piece, SumOf(warp, nonfinite));
  if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunBf16Average(const Warp& warp, const LowBitReduceParamsOf<kPieces>& p) {
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const LowBitTile& tile) {
    DecodeBf16Tile(warp, tile, p.output_type, [&](uint64_t i, unsigned count, uint32_t* nonfinite) {
      return Bf16SumsAt(p, tile.piece, i, count, nonfinite);
    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunBf16Decode(const Warp& warp, const LowBitDecodeParamsOf<kPieces>& p) {
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const LowBitTile& tile) {
    DecodeBf16Tile(warp, tile, p.output_type, [&](uint64_t i, unsigned count, uint32_t* nonfinite) {
      return Bf16ValuesAt(tile.piece, tile.piece.packet, i, count, nonfinite);
    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunBf16AddDelta(const Warp& warp, const LowBitDecodeParamsOf<kPieces>& p) {
  const auto add = [&](const LowBitTile& tile, const ResidualPair& pair) {
    const LowBitPiece& piece = tile.piece;
    const Input held_in = ArrayAt(pair.in, DataType::kF32);
    const Output held_out = ArrayAt(pair.out, DataType::kF32);
    DecodeBf16Tile(warp, tile, p.output_type, [&](uint64_t i, unsigned count, uint32_t* nonfinite) {
      const Quad<float> values = Bf16ValuesAt(piece, piece.packet, i, count, nonfinite);
      const uint32_t part = PartAt(piece.mask, i, count);
      Quad<float> held = LoadQuad(held_in, i, count);
      Quad<float> estimate;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        held.at[c] = (part >> c & 1) != 0 ? held.at[c] - values.at[c] : 0;
        estimate.at[c] = 0 - held.at[c];
      }
      StoreQuad(held, held_out, i, count);
      return estimate;
    });
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, /*keeps_residual=*/true, add);
}

}  // namespace onebit::kernels::cuda
