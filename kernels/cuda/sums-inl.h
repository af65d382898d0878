// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums over several tiles, computed from tile sums in index order by one warp; and the count of
// nonzero elements.
#pragma once

#include <cstdint>

#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/params.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::cuda {

// Sets sums[k], for each k, to the sum of value(tile, k) of the tiles [begin, end), added from left
// to right in fp64. The additions of a sum are sequential, so the others run beside them and the
// lanes load what comes next meanwhile.
template <unsigned kSums, class Value>
ONEBIT_KERNEL void SumInOrder(const Warp& warp, uint64_t begin, uint64_t end, const Value& value,
                              double (&sums)[kSums]) {
  constexpr unsigned kRuns = 4;  // of a tile in every lane
  struct Values {
    Lanes<double> at[kRuns][kSums];  // 0 from `end` on, which changes no sum
  };
  const auto load = [&](uint64_t first) {
    Values values;
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned r = 0; r < kRuns; ++r) {
        const uint64_t tile = first + r * kLanes + lane;
        ONEBIT_UNROLL
        for (unsigned k = 0; k < kSums; ++k) {
          if (tile < end) values.at[r][k][lane] = value(tile, k);
        }
      }
    });
    return values;
  };
  ONEBIT_UNROLL
  for (unsigned k = 0; k < kSums; ++k) sums[k] = 0;
  Values next = load(begin);
  for (uint64_t first = begin; first < end; first += kRuns * kLanes) {
    const Values values = next;
    next = load(first + kRuns * kLanes);
    ONEBIT_UNROLL
    for (unsigned r = 0; r < kRuns; ++r) {
      if (first + r * kLanes >= end) continue;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        ONEBIT_UNROLL
        for (unsigned k = 0; k < kSums; ++k) sums[k] += warp.Broadcast(values.at[r][k], lane);
      }
    }
  }
}

// Returns the sum of the tiles' sums, added in the same way.
ONEBIT_KERNEL double SumOfTiles(const Warp& warp, const TileSum* tiles, uint64_t begin,
                                uint64_t end) {
  double sum[1];
  SumInOrder(
      warp, begin, end, [&](uint64_t tile, unsigned) { return tiles[tile].sum; }, sum);
  return sum[0];
}

// Computes the scale of the pieces [first, last).
template <unsigned kPieces>
ONEBIT_KERNEL void FinishScale(const Warp& warp, const FinishScaleParamsOf<kPieces>& p,
                               uint32_t first, uint32_t last) {
  const PieceListOf<kPieces>& list = p.list;
  const uint64_t begin = list.pieces[first].first_tile;
  const uint64_t end = last < list.count ? list.pieces[last].first_tile : list.tiles;
  const double sum = SumOfTiles(warp, p.tile_sums, begin, end);
  Lanes<unsigned long long> counts;
  warp.ForEachLane([&](unsigned lane) {
    for (uint64_t tile = begin + lane; tile < end; tile += kLanes) {
      counts[lane] += p.tile_sums[tile].element_count;
    }
  });
  const uint64_t element_count = SumOf(warp, counts);
  float scale = reference::ScaleOfSum(sum, element_count, p.rule);
  if (p.ranks != 0) scale = reference::RoundedScale(scale, p.ranks, p.is_sum, p.output_type);
  const bool is_finite = sum - sum == 0 && IsFinite(scale);
  if (!is_finite) AddFaults(warp, list.pieces[first].faults, kNonfinite);
  warp.Once([&] {
    for (uint32_t k = first; k < last; ++k) {
      if (list.pieces[k].count != 0) *list.pieces[k].scales = scale;
    }
  });
}

template <unsigned kPieces>
ONEBIT_KERNEL void RunFinishScale(const Warp& warp, const FinishScaleParamsOf<kPieces>& p) {
  const PieceListOf<kPieces>& list = p.list;
  uint32_t scales = 0;
  for (uint32_t first = 0, last = 0; first < list.count; first = last) {
    do ++last;
    while (last < list.count && list.pieces[last].scale == list.pieces[first].scale);
    if (scales++ % warp.count() == warp.index()) FinishScale(warp, p, first, last);
  }
}

// The unmodified elements of an array.
struct ValueSource {
  Input values;

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* z) const {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      (*z)[lane] = LoadQuad(values, i, QuadCount(i, end));
    });
  }
};

ONEBIT_KERNEL void SumTiles(const Warp& warp, const SumParams& p, ScaleRule rule) {
  const ValueSource source = {ArrayAt(p.values, p.type)};
  ForEachRange(warp, p.count, kTensorSumBlock, [&](uint64_t begin, uint64_t end) {
    const BlockSum sum = SumOfBlock(warp, source, rule, false, begin, end);
    warp.Once([&] {
      p.tile_sums[begin / kTensorSumBlock] = {.sum = sum.sum, .element_count = end - begin};
    });
  });
}

ONEBIT_KERNEL void RunSumOfSquares(const Warp& warp, const SumParams& p) {
  SumTiles(warp, p, ScaleRule::kL2);
}

ONEBIT_KERNEL void RunSumOfMagnitudes(const Warp& warp, const SumParams& p) {
  SumTiles(warp, p, ScaleRule::kL1);
}

ONEBIT_KERNEL void RunFinishSum(const Warp& warp, const SumParams& p) {
  if (warp.index() != 0) return;
  const double sum = SumOfTiles(warp, p.tile_sums, 0, BlockCount(p.count, kTensorSumBlock));
  warp.Once([&] { *p.sum = sum; });
}

ONEBIT_KERNEL void RunMaskOfNonzero(const Warp& warp, const MaskParams& p) {
  const Input v = ArrayAt(static_cast<const void*>(p.v), DataType::kF32);
  Lanes<unsigned long long> counts;
  ForEachRange(warp, p.count, kElementTile, [&](uint64_t begin, uint64_t end) {
    for (uint64_t group = begin; group < end; group += kGroup) {
      Lanes<uint32_t> nibbles;
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = group + kQuad * lane;
        const Quad<float> quad = LoadQuad(v, i, QuadCount(i, end));
        nibbles[lane] = NibbleOf(quad, [](float value) { return value != 0; });
        counts[lane] += CountOfNibble(nibbles[lane]);
      });
      StoreGroupBits(warp, nibbles, group, end, p.mask);
    }
  });
  const unsigned long long count = SumOf(warp, counts);
  if (count != 0) warp.Once([&] { AtomicAdd(p.set_bits, count); });
}

}  // namespace onebit::kernels::cuda
