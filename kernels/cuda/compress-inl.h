// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Worker side: numbers to signs, scales and residuals. One warp per tile; a block that is a tile of
// encode-inl.h reads input and residual once and writes the residual, bits and a scale: 516 bytes
// for 4096 elements.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/encode-inl.h"
#include "kernels/cuda/params.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::cuda {

// z = input + residual of the elements of a piece.
struct WorkerSource {
  Input input;
  Input residual;  // data null: none
  const uint8_t* mask = nullptr;

  ONEBIT_KERNEL bool CanLoadTile() const { return input.is_aligned && residual.is_aligned; }

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* z) const {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      Quad<float> sum = LoadQuad(input, i, count);
      if (residual.data != nullptr) {
        const Quad<float> kept = LoadQuad(residual, i, count);
        ONEBIT_UNROLL
        for (unsigned c = 0; c < kQuad; ++c) sum.at[c] += kept.at[c];
      }
      const uint32_t part = PartOfQuad(mask, i, count);
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        (*z)[lane].at[c] = (part >> c & 1) != 0 ? sum.at[c] : 0;
      }
    });
  }

  // Loads a tile without its mask. All loads of the input are issued before the first is used.
  template <unsigned kGroups>
  ONEBIT_KERNEL void LoadTile(const Warp& warp, uint64_t begin, TileOfZ<kGroups>* z) const {
    switch (input.type) {
      case DataType::kF32:
        LoadInput<DataType::kF32>(warp, From(input, begin), z);
        break;
      case DataType::kF16:
        LoadInput<DataType::kF16>(warp, From(input, begin), z);
        break;
      case DataType::kBf16:
        LoadInput<DataType::kBf16>(warp, From(input, begin), z);
        break;
        ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
    }
    AddTile(warp, residual, begin, z);
  }

 private:
  template <DataType kType, unsigned kGroups>
  ONEBIT_KERNEL void LoadInput(const Warp& warp, const void* data, TileOfZ<kGroups>* z) const {
    ForEachGroup<kGroups>([&](unsigned g) {
      warp.ForEachLane([&](unsigned lane) {
        z->groups[g][lane] = LoadWholeQuad<kType>(QuadOfTile<kType>(data, g, lane));
      });
    });
  }
};

ONEBIT_KERNEL WorkerSource WorkerOf(const CompressKind& p, const ResidualPair& residual,
                                    const Piece& piece) {
  return {.input = ArrayAt(static_cast<const void*>(piece.values), p.input_type),
          .residual = ArrayAt(residual.in, p.residual_type),
          .mask = piece.mask};
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunCompressBlocks(const Warp& warp, const CompressParamsOf<kPieces>& p) {
  const auto compress = [&](const Tile& tile, const ResidualPair& residual) ONEBIT_INLINE {
    const Piece& piece = tile.piece;
    const auto decide = [&](const BlockSum& sum) ONEBIT_INLINE {
      const float scale = reference::RoundTo(p.scale_type, ScaleOf(sum, p.rule));
      const bool is_finite = sum.is_in_range && IsFinite(scale);
      if (!is_finite) AddFaults(warp, piece.faults, kNonfinite);
      // A division for each tile costs less than a register that keeps the number until here.
      warp.Once([&] { piece.scales[tile.begin / p.block] = scale; });
      return Decision{.is_finite = is_finite, .scale = scale};
    };
    EncodeBlock<2, 4, 8, 16, 32>(warp, WorkerOf(p, residual, piece), EncodingOf(p, residual, piece),
                                 tile.begin, tile.end, decide);
  };
  ForEachResidualTile(warp, p.list, p.block, p.keeps_residual, compress);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunCompressSigns(const Warp& warp, const CompressParamsOf<kPieces>& p) {
  ForEachTile(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    const Piece& piece = tile.piece;
    const ResidualPair residual = Resolve(piece, /*keeps_residual=*/false);
    EncodeBlock<32>(warp, WorkerOf(p, residual, piece), EncodingOf(p, residual, piece), tile.begin,
                    tile.end, [&](const BlockSum& sum) {
                      return AddTileSum(warp, sum, tile.index, p.tile_sums, piece.faults);
                    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunCompressResidual(const Warp& warp, const CompressParamsOf<kPieces>& p) {
  const auto finish = [&](const Tile& tile, const ResidualPair& residual) {
    if (residual.out == nullptr) return;
    const Piece& piece = tile.piece;
    Encoding encoding = EncodingOf(p, residual, piece);
    encoding.bits = nullptr;
    EncodeResidual(warp, WorkerOf(p, residual, piece), encoding, tile.begin, tile.end,
                   *piece.scales);
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, p.keeps_residual, finish);
}

}  // namespace onebit::kernels::cuda
