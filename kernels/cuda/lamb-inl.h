// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Moments of a layer and the norms for its trust ratio.
#pragma once

#include <cstdint>

#include "kernels/cuda/adam-inl.h"
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/sums-inl.h"

namespace onebit::kernels::cuda {

// The three vectors whose norms are computed, from elements with the moments after the step.
enum class LambVector { kX, kUpdate, kDecayed };

// Returns an element of `vector`.
ONEBIT_KERNEL float LambValue(const LambUpdate& p, LambVector vector, float x, float up) {
  if (vector == LambVector::kX) return x;
  return vector == LambVector::kUpdate ? up : up + p.weight_decay * x;
}

// Computes a vector again, from memory after the step.
struct LambSource {
  const LambUpdate& p;
  LambVector vector;

  ONEBIT_KERNEL void Load(const Warp& warp, uint64_t group, uint64_t end,
                          Lanes<Quad<float>>* z) const {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      const uint32_t part = PartOfQuad(p.mask, i, count);
      const Quad<float> x = LoadQuad(ReadOnly(p.x), i, count);
      const Quad<float> m = State(p.m).Load(i, count);
      const Quad<float> v = State(p.v).Load(i, count);
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const float den = reference::Denominator(v.at[c], p.v_correction, p.floor, p.eps);
        const float up = (part >> c & 1) != 0 ? (m.at[c] * p.m_correction) / den : 0;
        (*z)[lane].at[c] = c < count ? LambValue(p, vector, x.at[c], up) : 0;
      }
    });
  }
};

// A lane's sums over a tile.
struct LambSums {
  Quad<float> x, update, decayed;
  float max_ratio = 0;
};

// Updates the moments of a quad and adds it to the sums.
template <bool kIsFrozen>
ONEBIT_KERNEL void StepOfLamb(const LambUpdate& p, uint64_t i, unsigned count, LambSums* sums) {
  const State m(p.m), v(p.v), v_fresh(p.v_fresh);
  const uint32_t part = PartOfQuad(p.mask, i, count);
  const Quad<float> given = LoadQuad(ArrayAt(p.input, p.input_type), i, count);
  const Quad<float> x = LoadQuad(ReadOnly(p.x), i, count);
  Quad<float> new_m = m.Load(i, count);
  Quad<float> new_v = v.Load(i, count);
  Quad<float> fresh;
  if constexpr (kIsFrozen) fresh = v_fresh.Load(i, count);
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if (c >= count) continue;
    float up = 0;
    if ((part >> c & 1) != 0) {
      const float g = given.at[c] * p.input_scale;
      float den = 0;
      if constexpr (kIsFrozen) {
        const float kept = p.beta1 * new_m.at[c];
        const float ghat = (g - kept) / p.one_minus_beta1;
        fresh.at[c] = reference::NextVariance(p.beta2, p.one_minus_beta2, fresh.at[c], ghat);
        new_m.at[c] = g;
        den = reference::Denominator(new_v.at[c], p.v_correction, p.floor, p.eps);
        const float ratio =
            den / reference::Denominator(fresh.at[c], p.v_fresh_correction, p.floor, p.eps);
        if (ratio > sums->max_ratio) sums->max_ratio = ratio;
      } else {
        new_m.at[c] = reference::NextMomentum(p.beta1, p.one_minus_beta1, new_m.at[c], g);
        new_v.at[c] = reference::NextVariance(p.beta2, p.one_minus_beta2, new_v.at[c], g);
        den = reference::Denominator(new_v.at[c], p.v_correction, p.floor, p.eps);
      }
      up = (new_m.at[c] * p.m_correction) / den;
    } else {
      new_m.at[c] = 0;
    }
    const float decayed = LambValue(p, LambVector::kDecayed, x.at[c], up);
    sums->x.at[c] += x.at[c] * x.at[c];
    sums->update.at[c] += up * up;
    sums->decayed.at[c] += decayed * decayed;
  }
  m.Store(new_m, i, count);
  if constexpr (kIsFrozen) {
    v_fresh.Store(fresh, i, count);
  } else {
    v.Store(new_v, i, count);
  }
}

// The sum of squares of one vector over a tile: from the lanes' sums, or in fp64 if these left
// fp32's range.
template <class Part>
ONEBIT_KERNEL double SquaredNorm(const Warp& warp, const LambUpdate& p, LambVector vector,
                                 uint64_t begin, uint64_t end, const Lanes<LambSums>& sums,
                                 const Part& part) {
  Lanes<Quad<float>> quads;
  warp.ForEachLane([&](unsigned lane) { quads[lane] = part(sums[lane]); });
  const float sum = SumOfQuads(warp, quads);
  if (IsOrdinarySum(sum)) return sum;
  return SumOfLanes<double>(warp, LambSource{p, vector}, ScaleRule::kL2, begin, end);
}

template <bool kIsFrozen>
ONEBIT_KERNEL void RunLamb(const Warp& warp, const LambParams& params) {
  const LambUpdate& p = params.update;
  ForEachRange(warp, p.count, kTensorSumBlock, [&](uint64_t begin, uint64_t end) {
    Lanes<LambSums> sums;
    for (uint64_t group = begin; group < end; group += kGroup) {
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = group + kQuad * lane;
        const unsigned count = QuadCount(i, end);
        if (count != 0) StepOfLamb<kIsFrozen>(p, i, count, &sums[lane]);
      });
    }
    LambTile tile;
    tile.x_squared = SquaredNorm(warp, p, LambVector::kX, begin, end, sums,
                                 [](const LambSums& all) { return all.x; });
    tile.update_squared = SquaredNorm(warp, p, LambVector::kUpdate, begin, end, sums,
                                      [](const LambSums& all) { return all.update; });
    tile.decayed_squared = SquaredNorm(warp, p, LambVector::kDecayed, begin, end, sums,
                                       [](const LambSums& all) { return all.decayed; });
    Lanes<float> ratios;
    warp.ForEachLane([&](unsigned lane) { ratios[lane] = sums[lane].max_ratio; });
    tile.max_ratio = LargestOf(warp, ratios);
    warp.Once([&] { params.tiles[begin / kTensorSumBlock] = tile; });
  });
}

ONEBIT_KERNEL void RunLambDense(const Warp& warp, const LambParams& p) { RunLamb<false>(warp, p); }
ONEBIT_KERNEL void RunLambFrozen(const Warp& warp, const LambParams& p) { RunLamb<true>(warp, p); }

ONEBIT_KERNEL void RunFinishLamb(const Warp& warp, const LambParams& p) {
  if (warp.index() != 0) return;
  const uint64_t tiles = BlockCount(p.update.count, kTensorSumBlock);
  double sums[3];
  SumInOrder(
      warp, 0, tiles,
      [&](uint64_t tile, unsigned k) {
        const LambTile& norms = p.tiles[tile];
        return k == 0 ? norms.x_squared : k == 1 ? norms.update_squared : norms.decayed_squared;
      },
      sums);
  LambNorms norms;
  norms.x_squared = sums[0];
  norms.update_squared = sums[1];
  norms.decayed_squared = sums[2];
  Lanes<float> ratios;
  warp.ForEachLane([&](unsigned lane) {
    for (uint64_t tile = lane; tile < tiles; tile += kLanes) {
      if (p.tiles[tile].max_ratio > ratios[lane]) ratios[lane] = p.tiles[tile].max_ratio;
    }
  });
  norms.max_ratio = LargestOf(warp, ratios);
  warp.Once([&] { *p.norms = norms; });
}

}  // namespace onebit::kernels::cuda
