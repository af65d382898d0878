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

ONEBIT_KERNEL WorkerSource WorkerOf(const CompressParams& p, const ResidualPair& residual,
                                    const Piece& piece) {
  return {.input = ArrayAt(p.input, p.input_type, piece.element),
          .residual = ArrayAt(residual.in, p.residual.type, piece.residual),
          .mask = p.mask == nullptr ? nullptr : p.mask + piece.mask_byte};
}

ONEBIT_KERNEL Encoding EncodingOf(const CompressParams& p, const ResidualPair& residual,
                                  const Piece& piece) {
  return {.rule = p.rule,
          .mask = p.mask == nullptr ? nullptr : p.mask + piece.mask_byte,
          .has_bf16_residual = p.residual.type == DataType::kBf16,
          .bits = piece.bits,
          .residual = ArrayAt(residual.out, p.residual.type, piece.residual)};
}

ONEBIT_KERNEL void RunCompressBlocks(const Warp& warp, const CompressParams& p) {
  if (IsHalted(p)) return;
  const ResidualPair residual = Resolve(p.residual);
  ForEachTile(warp, p.list, p.block, [&](const Tile& tile) ONEBIT_INLINE {
    const Piece& piece = tile.piece;
    const auto decide = [&](const BlockSum& sum) ONEBIT_INLINE {
      const float scale = reference::RoundTo(p.scale_type, ScaleOf(sum, p.rule));
      const bool is_finite = sum.is_in_range && IsFinite(scale);
      if (!is_finite) SetVerdict(warp, p.verdict, kNonfinite);
      warp.Once([&] { piece.scales[tile.index_in_piece] = scale; });
      return Decision{.is_finite = is_finite, .scale = scale};
    };
    EncodeBlock<2, 4, 8, 16, 32>(warp, WorkerOf(p, residual, piece), EncodingOf(p, residual, piece),
                                 tile.begin, tile.end, decide);
  });
}

ONEBIT_KERNEL void RunCompressSigns(const Warp& warp, const CompressParams& p) {
  const ResidualPair residual = Resolve(p.residual);
  ForEachTile(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    Encoding encoding = EncodingOf(p, residual, tile.piece);
    encoding.residual = {nullptr, DataType::kF32, true};
    EncodeBlock<32>(warp, WorkerOf(p, residual, tile.piece), encoding, tile.begin, tile.end,
                    [&](const BlockSum& sum) {
                      return AddTileSum(warp, sum, tile.index, p.tile_sums, p.verdict);
                    });
  });
}

ONEBIT_KERNEL void RunCompressResidual(const Warp& warp, const CompressParams& p) {
  const ResidualPair residual = Resolve(p.residual);
  if (residual.out == nullptr || IsHalted(p)) return;
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    Encoding encoding = EncodingOf(p, residual, tile.piece);
    encoding.bits = nullptr;
    EncodeResidual(warp, WorkerOf(p, residual, tile.piece), encoding, tile.begin, tile.end,
                   *tile.piece.scales);
  });
}

}  // namespace onebit::kernels::cuda
