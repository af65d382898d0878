// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies the elements of a compressed call that are not sent, with the same checks as those that
// are.
#pragma once

#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

// One element per lane: this is one part of a tensor among those of all ranks. Its bits are copied
// unchanged.
template <unsigned kPieces>
ONEBIT_KERNEL void RunCopy(const Warp& warp, const CopyParamsOf<kPieces>& p) {
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    const Piece& piece = tile.piece;
    const uint8_t* const mask = piece.mask;
    Lanes<bool> is_infinite;
    for (uint64_t row = tile.begin; row < tile.end; row += kLanes) {
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = row + lane;
        if (i >= tile.end) return;
        const bool takes_part = mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0;
        if (p.type == DataType::kF32) {
          const uint32_t bits = takes_part ? reinterpret_cast<const uint32_t*>(piece.source)[i] : 0;
          if (!AreBitsFinite(p.type, bits)) is_infinite[lane] = true;
          static_cast<uint32_t*>(piece.values)[i] = bits;
        } else {
          const uint32_t bits = takes_part ? reinterpret_cast<const uint16_t*>(piece.source)[i] : 0;
          if (!AreBitsFinite(p.type, bits)) is_infinite[lane] = true;
          static_cast<uint16_t*>(piece.values)[i] = static_cast<uint16_t>(bits);
        }
      });
    }
    if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
  });
}

}  // namespace onebit::kernels::cuda
