// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tiles: the work of one warp at a time, and how warps share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/low_bit_params.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/warp.h"

namespace onebit::kernels::cuda {

// Elements of a tile if no scale, sum or list of pieces determines the size.
inline constexpr uint64_t kElementTile = 1024;
// Bytes of a tile for fills and checksums: four 16-byte accesses of every lane.
inline constexpr uint64_t kByteTile = 2048;
// Kernels that compute no sum split each tile of kTensorSumBlock elements, so that a tensor of few
// tiles keeps more processors busy.
inline constexpr unsigned kTileParts = kTensorSumBlock / kElementTile;

// Returns the size of a filled element.
ONEBIT_KERNEL uint64_t BytesOfFill(FillValue value) {
  switch (value) {
    case FillValue::kZeroBytes:
      return 1;
    case FillValue::kNanF32:
      return 4;
    case FillValue::kNanF16:
    case FillValue::kNanBf16:
      return 2;
  }
  return 1;
}

// Elements [begin, end) of a piece.
template <class PieceType>
struct TileOf {
  const PieceType& piece;
  bool is_first;            // of this piece, for this warp
  uint64_t index;           // in the launch
  uint64_t index_in_piece;  // in blocks, if a tile is a block
  uint64_t begin;
  uint64_t end;
};
using Tile = TileOf<Piece>;
using LowBitTile = TileOf<LowBitPiece>;

ONEBIT_KERNEL uint64_t Smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Calls body(TileOf<Piece type>) for the tiles of this warp, or for its equal parts of tiles.
template <unsigned kParts = 1, class List, class Body>
ONEBIT_KERNEL void ForEachTile(const Warp& warp, const List& list, uint64_t tile_elements,
                               const Body& body) {
  uint32_t k = 0;
  for (uint64_t part = warp.index(); part < uint64_t{list.tiles} * kParts; part += warp.count()) {
    const uint64_t tile = part / kParts;
    bool is_first = part == warp.index();
    for (; k + 1 < list.count && list.pieces[k + 1].first_tile <= tile; ++k) is_first = true;
    const auto& piece = list.pieces[k];
    const uint64_t in_piece = tile - piece.first_tile;
    const uint64_t begin = in_piece * tile_elements + part % kParts * (tile_elements / kParts);
    if (begin < piece.count) {
      const uint64_t end = Smaller(piece.count, begin + tile_elements / kParts);
      body(TileOf<std::remove_cvref_t<decltype(piece)>>{piece, is_first, tile, in_piece, begin,
                                                        end});
    }
  }
}

// Calls body(block, begin, end) for the parts of [begin, end) that lie in one block each; with
// block_elements == 0 all are in block 0.
template <class Body>
ONEBIT_KERNEL void ForEachBlock(uint64_t begin, uint64_t end, uint64_t block_elements,
                                const Body& body) {
  uint64_t block = block_elements == 0 ? 0 : begin / block_elements;
  while (begin < end) {
    const uint64_t block_end = block_elements == 0 ? end : (block + 1) * block_elements;
    const uint64_t part_end = Smaller(end, block_end);
    body(block, begin, part_end);
    begin = part_end;
    ++block;
  }
}

// Calls body(begin, end) for this warp's tiles of elements that belong to no piece.
template <class Body>
ONEBIT_KERNEL void ForEachRange(const Warp& warp, uint64_t count, uint64_t tile_elements,
                                const Body& body) {
  for (uint64_t tile = warp.index(); tile * tile_elements < count; tile += warp.count()) {
    const uint64_t begin = tile * tile_elements;
    body(begin, Smaller(count, begin + tile_elements));
  }
}

struct ResidualPair {
  const void* in = nullptr;
  void* out = nullptr;
};

// True if an earlier call failed, or the host has given up the call of this piece, so that it must
// write no residual.
template <class PieceType>
ONEBIT_KERNEL bool IsHalted(const PieceType& piece) {
  if (piece.decision != nullptr && (*piece.decision & ~uint32_t{kNonfinite}) != 0) return true;
  return piece.faults != nullptr && (*piece.faults & kHalted) != 0;
}

// The word whose bit 0 is the generation to read, or null.
ONEBIT_KERNEL const uint32_t* CurrentOf(const Piece& piece) { return piece.current; }
ONEBIT_KERNEL const uint32_t* CurrentOf(const LowBitPiece& piece) {
  return piece.words == nullptr ? nullptr : &piece.words->current;
}

// Returns the generation to read and the one to write.
template <class PieceType>
ONEBIT_KERNEL ResidualPair Resolve(const PieceType& piece, bool keeps_residual) {
  void* const first = piece.residuals[0];
  void* const second = piece.residuals[1];
  const uint32_t* const current = CurrentOf(piece);
  const bool is_second_current = current != nullptr && (*current & 1) != 0;
  const ResidualPair pair =
      is_second_current ? ResidualPair{second, first} : ResidualPair{first, second};
  return keeps_residual ? pair : ResidualPair{pair.in, nullptr};
}

// Like ForEachTile, but calls body(tile, ResidualPair), and leaves out pieces that are halted. The
// words that decide this may be in host memory, so they are read once for each piece.
template <unsigned kParts = 1, class List, class Body>
ONEBIT_KERNEL void ForEachResidualTile(const Warp& warp, const List& list, uint64_t tile_elements,
                                       bool keeps_residual, const Body& body) {
  bool is_halted = false;
  ResidualPair residual;
  ForEachTile<kParts>(warp, list, tile_elements, [&](const auto& tile) ONEBIT_INLINE {
    if (tile.is_first) {
      is_halted = IsHalted(tile.piece);
      residual = Resolve(tile.piece, keeps_residual);
    }
    if (!is_halted) body(tile, residual);
  });
}

}  // namespace onebit::kernels::cuda
