// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts signs and scales back to numbers, without compressing again.
#pragma once

#include <cstdint>

#include "kernels/cuda/encode-inl.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

// True if a part of a tile, with bits and mask from its first element on, is a whole run in words.
ONEBIT_KERNEL bool IsRun(const Output& output, const uint8_t* bits, const uint8_t* mask,
                         uint64_t count) {
  return count == kElementTile && output.is_aligned && IsAligned(bits, sizeof(uint32_t)) &&
         IsAligned(mask, sizeof(uint32_t));
}

// Decodes a run. All pointers begin with it; bf16 has the size of fp16.
template <DataType kType, bool kIsMasked>
ONEBIT_KERNEL void DecodeRun(const Warp& warp, const uint8_t* bits, const uint8_t* mask,
                             uint32_t positive, void* output) {
  constexpr unsigned kSign = 8 * BytesOf(kType) - 1;
  const Lanes<uint32_t> signs_of_run = LoadRun(warp, bits);
  const Lanes<uint32_t> mask_of_run = kIsMasked ? LoadRun(warp, mask) : Lanes<uint32_t>();
  ForEachGroup<kRunGroups>([&](unsigned g) {
    const Lanes<uint32_t> signs = BitsOfGroup(warp, signs_of_run, g);
    Lanes<uint32_t> part;
    if constexpr (kIsMasked) part = BitsOfGroup(warp, mask_of_run, g);
    warp.ForEachLane([&](unsigned lane) {
      Quad<uint32_t> quad;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        if (kIsMasked && (part[lane] >> c & 1) == 0) continue;
        quad.at[c] = positive ^ (signs[lane] << (kSign - c) & 1u << kSign);
      }
      StoreWholeQuad<kType>(quad, QuadOfTile<kType>(output, g, lane));
    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunDecode(const Warp& warp, const DecodeParamsOf<kPieces>& p) {
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    const Piece& piece = tile.piece;
    const Output output = ArrayAt(piece.values, p.output_type);
    const uint8_t* const mask = piece.mask;
    ForEachBlock(tile.begin, tile.end, p.block, [&](uint64_t block, uint64_t begin, uint64_t end) {
      // Rounding is independent of the sign: a scale is rounded once, and elements differ in their
      // sign bit.
      const uint32_t positive = BitsOfFloat(p.output_type, piece.scales[block]);
      const uint8_t* const bits = piece.bits + begin / 8;
      const uint8_t* const part_mask = mask == nullptr ? nullptr : mask + begin / 8;
      if (IsRun(output, bits, part_mask, end - begin)) {
        void* const to = From(output, begin);
        const bool is_wide = p.output_type == DataType::kF32;
        if (mask == nullptr && is_wide) {
          DecodeRun<DataType::kF32, false>(warp, bits, part_mask, positive, to);
        } else if (mask == nullptr) {
          DecodeRun<DataType::kF16, false>(warp, bits, part_mask, positive, to);
        } else if (is_wide) {
          DecodeRun<DataType::kF32, true>(warp, bits, part_mask, positive, to);
        } else {
          DecodeRun<DataType::kF16, true>(warp, bits, part_mask, positive, to);
        }
        return;
      }
      const uint32_t negative = positive ^ SignBit(p.output_type);
      for (uint64_t group = begin; group < end; group += kGroup) {
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t i = group + kQuad * lane;
          const unsigned count = QuadCount(i, end);
          if (count == 0) return;
          const uint32_t signs = NibbleAt(piece.bits, i);
          const uint32_t part = PartOfQuad(mask, i, count);
          Quad<uint32_t> quad;
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) {
            const uint32_t value = (signs >> c & 1) != 0 ? negative : positive;
            quad.at[c] = (part >> c & 1) != 0 ? value : 0;
          }
          StoreQuadBits(quad, output, i, count);
        });
      }
    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunAddDelta(const Warp& warp, const DecodeParamsOf<kPieces>& p) {
  const auto add = [&](const Tile& tile, const ResidualPair& pair) {
    const Piece& piece = tile.piece;
    const Output output = ArrayAt(piece.values, p.output_type);
    const Input held_in = ArrayAt(pair.in, DataType::kF32);
    const Output held_out = ArrayAt(pair.out, DataType::kF32);
    const uint8_t* const mask = piece.mask;
    Lanes<bool> is_infinite;
    ForEachBlock(tile.begin, tile.end, p.block, [&](uint64_t block, uint64_t begin, uint64_t end) {
      const float t = piece.scales[block];
      for (uint64_t group = begin; group < end; group += kGroup) {
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t i = group + kQuad * lane;
          const unsigned count = QuadCount(i, end);
          if (count == 0) return;
          const uint32_t signs = NibbleAt(piece.bits, i);
          const uint32_t part = PartOfQuad(mask, i, count);
          Quad<float> held = LoadQuad(held_in, i, count);
          Quad<uint32_t> bits;
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) {
            const float next = held.at[c] - ((signs >> c & 1) != 0 ? -t : t);
            held.at[c] = (part >> c & 1) != 0 ? next : 0;
            bits.at[c] = BitsOfFloat(p.output_type, 0 - held.at[c]);
            if (!AreBitsFinite(p.output_type, bits.at[c])) is_infinite[lane] = true;
          }
          if (held_out.data != nullptr) StoreQuad(held, held_out, i, count);
          if (output.data != nullptr) StoreQuadBits(bits, output, i, count);
        });
      }
    });
    if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, /*keeps_residual=*/true, add);
}

}  // namespace onebit::kernels::cuda
