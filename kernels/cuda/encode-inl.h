// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts z to signs, scale and residual, for worker and server.
//
// A tile, which is a block of 256 elements or a power of 2 times that, up to 4096, passes through
// registers: 2 to 32 groups, four elements of each in every lane. All other lengths, and tiles
// whose arrays are not aligned, are read once for the sum and again for signs and residual, while
// they are still in a cache.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

// The z of a whole tile. Every index is a constant once loops are unrolled, so it stays in
// registers.
template <unsigned kGroups>
struct TileOfZ {
  static_assert(kGroups <= kLanes, "lane g keeps the bits of group g");
  Lanes<Quad<float>> groups[kGroups];
};

// The destination of a piece's results.
struct Encoding {
  ScaleRule rule = ScaleRule::kL2;
  const uint8_t* mask = nullptr;
  bool has_bf16_residual = false;
  uint8_t* bits = nullptr;
  Output residual;  // data null: residuals are not kept
};

// `Kind` is CompressKind or ReduceKind.
template <class Kind>
ONEBIT_KERNEL Encoding EncodingOf(const Kind& kind, const ResidualPair& residual,
                                  const Piece& piece) {
  return {.rule = kind.rule,
          .mask = piece.mask,
          .has_bf16_residual = kind.residual_type == DataType::kBf16,
          .bits = piece.bits,
          .residual = ArrayAt(residual.out, kind.residual_type)};
}

// The result of a block's sum.
struct Decision {
  bool is_finite = true;
  float scale = 0;  // the magnitude to subtract from each z
};

// Addresses of a lane's quad of a group in an aligned array, and of its nibble in packed bits; both
// pointers begin at the tile. The form "one address of the lane plus a constant" needs one register
// for all 32 addresses.
template <DataType kType, class Void>
ONEBIT_KERNEL Void* QuadOfTile(Void* data, unsigned g, unsigned lane) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  return (static_cast<Byte*>(data) + lane * kQuad * BytesOf(kType)) + g * kGroup * BytesOf(kType);
}
ONEBIT_KERNEL uint32_t NibbleOfTile(const uint8_t* bits, unsigned g, unsigned lane) {
  return (bits + lane / 2)[g * (kGroup / 8)] >> (lane % 2 * kQuad) & 0xFu;
}

// Returns `data` from element `i` on.
template <class Void>
ONEBIT_KERNEL Void* From(const ArrayOf<Void>& array, uint64_t i) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  return static_cast<Byte*>(array.data) + i * BytesOfFloat(array.type);
}

template <unsigned kGroups, class Body>
ONEBIT_KERNEL void ForEachGroup(const Body& body) {
  ONEBIT_UNROLL
  for (unsigned g = 0; g < kGroups; ++g) body(g);
}

// Like ForEachGroup above, but for bodies whose loads are needed only briefly: `kAtOnce` groups are
// loaded at the same time. Loading all of them would not leave enough registers for z.
template <unsigned kGroups, unsigned kAtOnce, class Body>
ONEBIT_KERNEL void ForEachGroup(const Warp& warp, const Body& body) {
  ONEBIT_UNROLL
  for (unsigned g = 0; g < kGroups; ++g) {
    if (g % kAtOnce == 0) warp.Sync();
    body(g);
  }
}

// Adds a residual that begins with the tile.
template <DataType kType, unsigned kGroups>
ONEBIT_KERNEL void AddWholeTile(const Warp& warp, const void* residual, TileOfZ<kGroups>* z) {
  ForEachGroup<kGroups, 4>(warp, [&](unsigned g) {
    warp.ForEachLane([&](unsigned lane) {
      const Quad<float> kept = LoadWholeQuad<kType>(QuadOfTile<kType>(residual, g, lane));
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) z->groups[g][lane].at[c] += kept.at[c];
    });
  });
}

// Adds the residual of a piece, if there is one, to its tile at `begin`.
template <unsigned kGroups>
ONEBIT_KERNEL void AddTile(const Warp& warp, const Input& residual, uint64_t begin,
                           TileOfZ<kGroups>* z) {
  if (residual.data == nullptr) return;
  if (residual.type == DataType::kF32) {
    AddWholeTile<DataType::kF32>(warp, From(residual, begin), z);
  } else {
    AddWholeTile<DataType::kBf16>(warp, From(residual, begin), z);
  }
}

// `mask` begins with the tile.
template <unsigned kGroups>
ONEBIT_KERNEL void ClearMasked(const Warp& warp, const uint8_t* mask, TileOfZ<kGroups>* z) {
  ForEachGroup<kGroups, 8>(warp, [&](unsigned g) {
    warp.ForEachLane([&](unsigned lane) {
      const uint32_t part = NibbleOfTile(mask, g, lane);
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        float& value = z->groups[g][lane].at[c];
        value = (part >> c & 1) != 0 ? value : 0;
      }
    });
  });
}

template <ScaleRule kRule, unsigned kGroups>
ONEBIT_KERNEL float SumOfTile(const Warp& warp, const TileOfZ<kGroups>& z) {
  Lanes<Quad<float>> sums;
  ForEachGroup<kGroups>([&](unsigned g) {
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        sums[lane].at[c] += TermOf(kRule, z.groups[g][lane].at[c]);
      }
    });
  });
  return SumOfQuads(warp, sums);
}

// True if every z is +0 or -0.
template <unsigned kGroups>
ONEBIT_KERNEL bool IsZero(const Warp& warp, const TileOfZ<kGroups>& z) {
  Lanes<uint32_t> magnitudes;
  ForEachGroup<kGroups>([&](unsigned g) {
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        magnitudes[lane] |= std::bit_cast<uint32_t>(z.groups[g][lane].at[c]) & 0x7FFFFFFFu;
      }
    });
  });
  return LargestOf(warp, magnitudes) == 0;
}

// Moves bits 0 to 7 to bits 0, 4, ... 28.
ONEBIT_KERNEL uint32_t SpreadByte(uint32_t byte) {
  byte = (byte | byte << 12) & 0x000F000Fu;
  byte = (byte | byte << 6) & 0x03030303u;
  return (byte | byte << 3) & 0x11111111u;
}

template <unsigned kGroups>
ONEBIT_KERNEL void StoreTileBits(const Warp& warp, const TileOfZ<kGroups>& z, uint8_t* bits) {
  // Bit l of by_component[c] of lane g is set if element 4l + c of group g is negative.
  Lanes<Quad<uint32_t>> by_component;
  ForEachGroup<kGroups>([&](unsigned g) {
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      Lanes<bool> is_negative;
      warp.ForEachLane([&](unsigned lane) { is_negative[lane] = z.groups[g][lane].at[c] < 0; });
      const uint32_t ballot = warp.Ballot(is_negative);
      warp.ForEachLane([&](unsigned lane) {
        uint32_t& kept = by_component[lane].at[c];
        kept = lane == g ? ballot : kept;
      });
    }
  });
  const bool is_aligned = IsAligned(bits, 16);
  const bool has_words = IsAligned(bits, 4);
  warp.ForEachLane([&](unsigned lane) {
    if (lane >= kGroups) return;
    uint32_t words[4] = {};
    ONEBIT_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        words[w] |= SpreadByte(by_component[lane].at[c] >> (8 * w) & 0xFFu) << c;
      }
    }
    uint8_t* to = bits + 16 * lane;
    if (is_aligned) {
      StoreWords(words, to);
      return;
    }
    ONEBIT_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      if (has_words) {
        *reinterpret_cast<uint32_t*>(to + 4 * w) = words[w];
        continue;
      }
      ONEBIT_UNROLL
      for (unsigned b = 0; b < 4; ++b) to[4 * w + b] = static_cast<uint8_t>(words[w] >> (8 * b));
    }
  });
}

// `mask` and `residual` begin with the tile.
template <DataType kType, bool kIsMasked, unsigned kGroups>
ONEBIT_KERNEL void StoreTileResidual(const Warp& warp, const TileOfZ<kGroups>& z,
                                     const uint8_t* mask, float scale, void* residual) {
  ForEachGroup<kGroups>([&](unsigned g) {
    warp.ForEachLane([&](unsigned lane) {
      const uint32_t part = kIsMasked ? NibbleOfTile(mask, g, lane) : 0xFu;
      Quad<uint32_t> lost;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const float value = z.groups[g][lane].at[c];
        // "< 0", as used for the signs, would be slow: the compiler would keep 4096 comparisons for
        // this.
        const uint32_t bits = BitsOfFloat(kType, value - (value >= 0 ? scale : -scale));
        lost.at[c] = (part >> c & 1) != 0 ? bits : 0;
      }
      StoreWholeQuad<kType>(lost, QuadOfTile<kType>(residual, g, lane));
    });
  });
}

template <unsigned kGroups>
ONEBIT_KERNEL void StoreTileResidual(const Warp& warp, const TileOfZ<kGroups>& z,
                                     const uint8_t* mask, float scale, DataType type,
                                     void* residual) {
  if (mask == nullptr) {
    if (type == DataType::kF32) {
      StoreTileResidual<DataType::kF32, false>(warp, z, mask, scale, residual);
    } else {
      StoreTileResidual<DataType::kBf16, false>(warp, z, mask, scale, residual);
    }
  } else {
    if (type == DataType::kF32) {
      StoreTileResidual<DataType::kF32, true>(warp, z, mask, scale, residual);
    } else {
      StoreTileResidual<DataType::kBf16, true>(warp, z, mask, scale, residual);
    }
  }
}

// Encodes a whole tile that may pass through registers. Returns false, with nothing written, if its
// sum needs a closer look.
template <unsigned kGroups, class Source, class Decide>
ONEBIT_KERNEL bool EncodeTile(const Warp& warp, const Source& source, const Encoding& encoding,
                              uint64_t begin, const Decide& decide) {
  const uint8_t* const mask = encoding.mask == nullptr ? nullptr : encoding.mask + begin / 8;
  TileOfZ<kGroups> z;
  source.LoadTile(warp, begin, &z);
  if (mask != nullptr) ClearMasked(warp, mask, &z);
  const float sum = encoding.rule == ScaleRule::kL2 ? SumOfTile<ScaleRule::kL2>(warp, z)
                                                    : SumOfTile<ScaleRule::kL1>(warp, z);
  // A tile of zeros, for example of a zero gradient, needs no other sum.
  if (!IsOrdinarySum(sum) && !(sum == 0 && IsZero(warp, z))) return false;
  if (!IsSumInRange(sum)) return false;
  const uint32_t count = CountInMask(warp, mask, 0, kGroups * kGroup);
  if (count == 0) return false;  // prevents a division by 0
  const Decision decision =
      decide(BlockSum{.sum = sum, .element_count = count, .is_ordinary = true});
  if (!decision.is_finite) return true;
  StoreTileBits(warp, z, encoding.bits + begin / 8);
  if (encoding.residual.data != nullptr) {
    StoreTileResidual(warp, z, mask, decision.scale, encoding.residual.type,
                      From(encoding.residual, begin));
  }
  return true;
}

// Writes signs, if `bits` is not null, and residual of elements [begin, end); `begin` is a multiple
// of 8.
template <class Source>
ONEBIT_KERNEL void EncodeElements(const Warp& warp, const Source& source, const Encoding& encoding,
                                  uint64_t begin, uint64_t end, float scale) {
  for (uint64_t group = begin; group < end; group += kGroup) {
    Lanes<Quad<float>> z;
    source.Load(warp, group, end, &z);
    if (encoding.bits != nullptr) {
      Lanes<uint32_t> signs;
      warp.ForEachLane([&](unsigned lane) {
        signs[lane] = NibbleOf(z[lane], [](float value) { return value < 0; });
      });
      StoreGroupBits(warp, signs, group, end, encoding.bits);
    }
    if (encoding.residual.data == nullptr) continue;
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      const uint32_t part = PartOfQuad(encoding.mask, i, count);
      Quad<float> lost;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const float value = z[lane].at[c];
        if ((part >> c & 1) != 0) lost.at[c] = value - (value < 0 ? -scale : scale);
      }
      StoreQuad(lost, encoding.residual, i, count);
    });
  }
}

// Writes the residual of elements [begin, end), a part of a tile.
template <class Source>
ONEBIT_KERNEL void EncodeResidual(const Warp& warp, const Source& source, const Encoding& encoding,
                                  uint64_t begin, uint64_t end, float scale) {
  if (end - begin != kElementTile || !encoding.residual.is_aligned || !source.CanLoadTile()) {
    EncodeElements(warp, source, encoding, begin, end, scale);
    return;
  }
  const uint8_t* const mask = encoding.mask == nullptr ? nullptr : encoding.mask + begin / 8;
  TileOfZ<kElementTile / kGroup> z;
  source.LoadTile(warp, begin, &z);
  if (mask != nullptr) ClearMasked(warp, mask, &z);
  StoreTileResidual(warp, z, mask, scale, encoding.residual.type, From(encoding.residual, begin));
}

// Stores the sum of a tile for the kernel that computes a scale of all tiles.
ONEBIT_KERNEL Decision AddTileSum(const Warp& warp, const BlockSum& sum, uint64_t tile,
                                  TileSum* tile_sums, uint32_t* faults) {
  if (!sum.is_in_range) AddFaults(warp, faults, kNonfinite);
  warp.Once([&] {
    tile_sums[tile] = {.sum = sum.is_in_range ? sum.sum : NAN, .element_count = sum.element_count};
  });
  return {.is_finite = sum.is_in_range};
}

// Encodes a block or, for a scale that spans several, a tile. All lanes call decide(BlockSum); if
// it says no, or if a z is not finite, nothing more is written. `kGroups` are the lengths that pass
// through registers, in groups.
template <unsigned... kGroups, class Source, class Decide>
ONEBIT_KERNEL void EncodeBlock(const Warp& warp, const Source& source, const Encoding& encoding,
                               uint64_t begin, uint64_t end, const Decide& decide) {
  const uint64_t tile = encoding.residual.is_aligned && source.CanLoadTile() ? end - begin : 0;
  if ((... ||
       (tile == kGroups * kGroup && EncodeTile<kGroups>(warp, source, encoding, begin, decide)))) {
    return;
  }
  BlockSum sum = SumOfBlock(warp, source, encoding.rule, encoding.has_bf16_residual, begin, end);
  sum.element_count = CountInMask(warp, encoding.mask, begin, end);
  const Decision decision = decide(sum);
  if (decision.is_finite) EncodeElements(warp, source, encoding, begin, end, decision.scale);
}

}  // namespace onebit::kernels::cuda
