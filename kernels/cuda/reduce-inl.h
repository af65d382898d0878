// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Server side: decodes and averages the packets of all ranks, and compresses the mean again or
// writes it to the output.
#pragma once

#include <cstdint>

#include "kernels/cuda/decode-inl.h"
#include "kernels/cuda/encode-inl.h"
#include "kernels/cuda/params.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::cuda {

// The packets of all ranks, for a part of a piece with one scale per rank.
class PacketMean {
 public:
  // `block` is the index of the scale.
  ONEBIT_KERNEL PacketMean(const Warp& warp, const ReduceKind& kind, const Piece& piece,
                           uint64_t block)
      : packets_{piece.source, kind.stride, piece.own_source, kind.rank, kind.ranks},
        bits_offset_(piece.source_bits),
        scale_offset_(sizeof(float) * block),
        terms_(kind.terms),
        first_weights_(WeightsFrom(warp, 0)) {}

  // Sums the ranks' values of the group at element `group`.
  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* mean) const {
    warp.ForEachLane([&](unsigned lane) { (*mean)[lane] = kNothing; });
    ForEachRank(warp, [&](uint32_t rank, float weight) {
      const uint8_t* const bits = BitsOf(rank);
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = group + kQuad * lane;
        if (i < end) AddQuad(NibbleAt(bits, i), weight, &(*mean)[lane]);
      });
    });
    if (terms_.divisor == 1) return;
    warp.ForEachLane([&](unsigned lane) { Divide(&(*mean)[lane]); });
  }

  // True if bits lie at multiples of four bytes, as LoadTile requires.
  ONEBIT_KERNEL bool HasWords() const {
    return IsAligned(packets_.sources + bits_offset_, sizeof(uint32_t)) &&
           IsAligned(packets_.own_source + bits_offset_, sizeof(uint32_t)) &&
           packets_.stride % sizeof(uint32_t) == 0;
  }

  // Like Load, but for a whole tile: adds rank by rank, and loads the next rank's bits meanwhile.
  template <unsigned kGroups>
  ONEBIT_KERNEL void LoadTile(const Warp& warp, uint64_t begin, TileOfZ<kGroups>* mean) const {
    ForEachGroup<kGroups>([&](unsigned g) {
      warp.ForEachLane([&](unsigned lane) { mean->groups[g][lane] = kNothing; });
    });
    TileBits<kGroups> next = LoadTileBits<kGroups>(warp, 0, begin);
    ForEachRank(warp, [&](uint32_t rank, float weight) {
      const TileBits<kGroups> bits = next;
      if (rank + 1 < packets_.ranks) next = LoadTileBits<kGroups>(warp, rank + 1, begin);
      ForEachGroup<kGroups>([&](unsigned g) {
        const Lanes<uint32_t> signs = BitsOfGroup(warp, bits.runs[g / kRunGroups], g % kRunGroups);
        warp.ForEachLane(
            [&](unsigned lane) { AddQuad(signs[lane], weight, &mean->groups[g][lane]); });
      });
    });
    if (terms_.divisor == 1) return;
    ForEachGroup<kGroups>([&](unsigned g) {
      warp.ForEachLane([&](unsigned lane) { Divide(&mean->groups[g][lane]); });
    });
  }

 private:
  // A rank's bits of a tile.
  template <unsigned kGroups>
  struct TileBits {
    Lanes<uint32_t> runs[(kGroups + kRunGroups - 1) / kRunGroups];
  };

  // Starting from -0 instead of 0 leaves every first term unchanged, including -0.
  static constexpr Quad<float> kNothing = {{-0.0f, -0.0f, -0.0f, -0.0f}};

  static ONEBIT_KERNEL void AddQuad(uint32_t signs, float weight, Quad<float>* mean) {
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) mean->at[c] += (signs >> c & 1) != 0 ? -weight : weight;
  }

  ONEBIT_KERNEL void Divide(Quad<float>* sum) const {
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) sum->at[c] /= static_cast<float>(terms_.divisor);
  }

  template <unsigned kGroups>
  ONEBIT_KERNEL TileBits<kGroups> LoadTileBits(const Warp& warp, uint32_t rank,
                                               uint64_t begin) const {
    TileBits<kGroups> bits;
    const uint8_t* const data = BitsOf(rank) + begin / 8;
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned first = 0; first < kGroups; first += kRunGroups) {
        if (kGroups < kRunGroups && lane >= kGroups * (kLanes / kRunGroups)) continue;
        bits.runs[first / kRunGroups][lane] = *reinterpret_cast<const uint32_t*>(
            data + (first * kGroup / 8 + sizeof(uint32_t) * lane));
      }
    });
    return bits;
  }

  // Calls body(rank, weight) for every rank. The lanes hold the weights of 32 ranks at a time.
  template <class Body>
  ONEBIT_KERNEL void ForEachRank(const Warp& warp, const Body& body) const {
    Lanes<float> weights = first_weights_;
    uint32_t rank = 0;
    do {  // there is at least one
      if (rank % kLanes == 0 && rank != 0) weights = WeightsFrom(warp, rank);
      body(rank, warp.Broadcast(weights, rank % kLanes));
    } while (++rank < packets_.ranks);
  }

  ONEBIT_KERNEL const std::byte* PacketOf(uint32_t rank) const {
    return rank == packets_.rank ? packets_.own_source : packets_.sources + rank * packets_.stride;
  }
  ONEBIT_KERNEL const uint8_t* BitsOf(uint32_t rank) const {
    return reinterpret_cast<const uint8_t*>(PacketOf(rank) + bits_offset_);
  }
  // Returns the scales of ranks `first` and following, times their factors, or divided by the
  // number of ranks where there are none.
  ONEBIT_KERNEL Lanes<float> WeightsFrom(const Warp& warp, uint32_t first) const {
    Lanes<float> weights;
    warp.ForEachLane([&](unsigned lane) {
      if (first + lane >= packets_.ranks) return;
      const float scale = *reinterpret_cast<const float*>(PacketOf(first + lane) + scale_offset_);
      weights[lane] = terms_.factors == nullptr ? scale / static_cast<float>(packets_.ranks)
                                                : scale * terms_.factors[first + lane];
    });
    return weights;
  }

  SourcePackets packets_;
  uint64_t bits_offset_;
  uint64_t scale_offset_;
  PacketTerms terms_;
  Lanes<float> first_weights_;
};

// y = mean + residual of the elements of a piece.
struct ServerSource {
  const PacketMean& packets;
  Input residual;  // data null: none
  const uint8_t* mask = nullptr;

  ONEBIT_KERNEL bool CanLoadTile() const { return residual.is_aligned && packets.HasWords(); }

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* y) const {
    packets.Load(warp, group, end, y);
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      const uint32_t part = PartOfQuad(mask, i, count);
      Quad<float> kept;
      if (residual.data != nullptr) kept = LoadQuad(residual, i, count);
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        float& value = (*y)[lane].at[c];
        if (residual.data != nullptr) value += kept.at[c];
        value = (part >> c & 1) != 0 ? value : 0;
      }
    });
  }

  template <unsigned kGroups>
  ONEBIT_KERNEL void LoadTile(const Warp& warp, uint64_t begin, TileOfZ<kGroups>* y) const {
    packets.LoadTile(warp, begin, y);
    AddTile(warp, residual, begin, y);
  }
};

ONEBIT_KERNEL ServerSource ServerOf(const ReduceKind& p, const PacketMean& packets,
                                    const ResidualPair& residual, const Piece& piece) {
  return {
      .packets = packets, .residual = ArrayAt(residual.in, p.residual_type), .mask = piece.mask};
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunReduceBlocks(const Warp& warp, const ReduceParamsOf<kPieces>& p) {
  const auto reduce = [&](const Tile& tile, const ResidualPair& residual) ONEBIT_INLINE {
    const Piece& piece = tile.piece;
    const uint64_t block = tile.index_in_piece;
    const PacketMean packets(warp, p, piece, block);
    const auto decide = [&](const BlockSum& sum) ONEBIT_INLINE {
      const float a = ScaleOf(sum, p.rule);
      const float t = reference::RoundedScale(a, p.ranks, p.is_sum, p.output_type);
      const bool is_finite = sum.is_in_range && IsFinite(t);
      if (!is_finite) AddFaults(warp, piece.faults, kNonfinite);
      warp.Once([&] { piece.scales[block] = t; });
      return Decision{.is_finite = is_finite, .scale = p.is_sum ? QuotientOf(t, p.ranks) : t};
    };
    EncodeBlock<2, 4, 8, 16, 32>(warp, ServerOf(p, packets, residual, piece),
                                 EncodingOf(p, residual, piece), tile.begin, tile.end, decide);
  };
  ForEachResidualTile(warp, p.list, p.block, /*keeps_residual=*/true, reduce);
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunReduceSigns(const Warp& warp, const ReduceParamsOf<kPieces>& p) {
  ForEachTile(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    const Piece& piece = tile.piece;
    const ResidualPair residual = Resolve(piece, /*keeps_residual=*/false);
    const PacketMean packets(warp, p, piece, 0);
    EncodeBlock<32>(warp, ServerOf(p, packets, residual, piece), EncodingOf(p, residual, piece),
                    tile.begin, tile.end, [&](const BlockSum& sum) {
                      return AddTileSum(warp, sum, tile.index, p.tile_sums, piece.faults);
                    });
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunReduceResidual(const Warp& warp, const ReduceParamsOf<kPieces>& p) {
  const auto finish = [&](const Tile& tile, const ResidualPair& residual) {
    if (residual.out == nullptr) return;
    const Piece& piece = tile.piece;
    const PacketMean packets(warp, p, piece, 0);
    Encoding encoding = EncodingOf(p, residual, piece);
    encoding.bits = nullptr;
    EncodeResidual(warp, ServerOf(p, packets, residual, piece), encoding, tile.begin, tile.end,
                   reference::ScaleOfMean(*piece.scales, p.ranks, p.is_sum));
  };
  ForEachResidualTile<kTileParts>(warp, p.list, kTensorSumBlock, /*keeps_residual=*/true, finish);
}

// Stores the mean of a run, times `factor`. `mask` and `output` begin with it.
template <DataType kType, bool kIsMasked>
ONEBIT_KERNEL void StoreMean(const Warp& warp, const TileOfZ<kRunGroups>& mean, float factor,
                             const uint8_t* mask, void* output, Lanes<bool>* is_infinite) {
  const Lanes<uint32_t> mask_of_run = kIsMasked ? LoadRun(warp, mask) : Lanes<uint32_t>();
  ForEachGroup<kRunGroups>([&](unsigned g) {
    Lanes<uint32_t> part;
    if constexpr (kIsMasked) part = BitsOfGroup(warp, mask_of_run, g);
    warp.ForEachLane([&](unsigned lane) {
      Quad<uint32_t> bits;
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        if (kIsMasked && (part[lane] >> c & 1) == 0) continue;
        bits.at[c] = BitsOfFloat(kType, mean.groups[g][lane].at[c] * factor);
        if (!AreBitsFinite(kType, bits.at[c])) (*is_infinite)[lane] = true;
      }
      StoreWholeQuad<kType>(bits, QuadOfTile<kType>(output, g, lane));
    });
  });
}

template <bool kIsMasked>
ONEBIT_KERNEL void StoreMean(const Warp& warp, const TileOfZ<kRunGroups>& mean, float factor,
                             const uint8_t* mask, DataType type, void* output,
                             Lanes<bool>* is_infinite) {
  switch (type) {
    case DataType::kF32:
      return StoreMean<DataType::kF32, kIsMasked>(warp, mean, factor, mask, output, is_infinite);
    case DataType::kF16:
      return StoreMean<DataType::kF16, kIsMasked>(warp, mean, factor, mask, output, is_infinite);
    case DataType::kBf16:
      return StoreMean<DataType::kBf16, kIsMasked>(warp, mean, factor, mask, output, is_infinite);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunDecodeAverage(const Warp& warp, const ReduceParamsOf<kPieces>& p) {
  ForEachTile<kTileParts>(warp, p.list, kTensorSumBlock, [&](const Tile& tile) {
    const Piece& piece = tile.piece;
    const Output output = ArrayAt(piece.values, p.output_type);
    const uint8_t* const mask = piece.mask;
    Lanes<bool> is_infinite;
    const auto store_part = [&](uint64_t block, uint64_t begin, uint64_t end) {
      const PacketMean packets(warp, p, piece, block);
      const float factor = p.is_sum ? static_cast<float>(p.ranks) : 1.0f;
      const uint8_t* const part_mask = mask == nullptr ? nullptr : mask + begin / 8;
      if (packets.HasWords() && IsRun(output, nullptr, part_mask, end - begin)) {
        TileOfZ<kRunGroups> mean;
        packets.LoadTile(warp, begin, &mean);
        void* const to = From(output, begin);
        if (mask == nullptr) {
          StoreMean<false>(warp, mean, factor, part_mask, p.output_type, to, &is_infinite);
        } else {
          StoreMean<true>(warp, mean, factor, part_mask, p.output_type, to, &is_infinite);
        }
        return;
      }
      for (uint64_t group = begin; group < end; group += kGroup) {
        Lanes<Quad<float>> mean;
        packets.Load(warp, group, end, &mean);
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t i = group + kQuad * lane;
          const unsigned count = QuadCount(i, end);
          const uint32_t part = PartOfQuad(mask, i, count);
          Quad<uint32_t> bits;
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) {
            if ((part >> c & 1) == 0) continue;
            bits.at[c] = BitsOfFloat(p.output_type, mean[lane].at[c] * factor);
            if (!AreBitsFinite(p.output_type, bits.at[c])) is_infinite[lane] = true;
          }
          StoreQuadBits(bits, output, i, count);
        });
      }
    };
    ForEachBlock(tile.begin, tile.end, p.block, store_part);
    if (warp.Ballot(is_infinite) != 0) AddFaults(warp, piece.faults, kNonfinite);
  });
}

}  // namespace onebit::kernels::cuda
