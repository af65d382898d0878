// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The sum for a scale, in the order of FORMAT.md, computed by one warp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/quads.h"
#include "kernels/cuda/scale.h"
#include "kernels/cuda/tiles.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::cuda {

struct BlockSum {
  double sum = 0;
  uint32_t element_count = 0;  // elements that take part
  bool is_in_range = true;     // every z can be compressed
  bool is_ordinary = false;    // a valid fp32 sum, or 0 because all are zeros
};

// Equals reference::ScaleOfSum, at less cost if the sum is ordinary.
ONEBIT_KERNEL float ScaleOf(const BlockSum& sum, ScaleRule rule) {
  if (!sum.is_ordinary) return reference::ScaleOfSum(sum.sum, sum.element_count, rule);
  const double mean = QuotientOf(sum.sum, sum.element_count);
  return static_cast<float>(rule == ScaleRule::kL2 ? RootOf(mean) : mean);
}

template <class Real>
ONEBIT_KERNEL Real TermOf(ScaleRule rule, Real z) {
  return rule == ScaleRule::kL2 ? z * z : std::abs(z);
}

// The tree over 128 sum lanes. Its halves of 64 to 4 lanes combine warp lanes 16 to 1 apart; its
// halves of 2 and 1 are within one warp lane.
template <class Real>
ONEBIT_KERNEL Real SumOfQuads(const Warp& warp, Lanes<Quad<Real>> sums) {
  ONEBIT_UNROLL
  for (unsigned delta = kLanes / 2; delta >= 1; delta /= 2) {
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      Lanes<Real> component;
      warp.ForEachLane([&](unsigned lane) { component[lane] = sums[lane].at[c]; });
      const Lanes<Real> upper = warp.ShuffleDown(component, delta);
      warp.ForEachLane([&](unsigned lane) { sums[lane].at[c] += upper[lane]; });
    }
  }
  Lanes<Real> total;
  warp.ForEachLane([&](unsigned lane) {
    const Quad<Real>& last = sums[lane];
    total[lane] = (last.at[0] + last.at[2]) + (last.at[1] + last.at[3]);
  });
  return warp.Broadcast(total, 0);
}

// True for a valid fp32 sum: squares and magnitudes neither left its range nor vanished.
ONEBIT_KERNEL bool IsOrdinarySum(float sum) { return sum >= 0x1p-100f && sum < INFINITY; }

// `source` provides a z for every element of its piece: source.Load(warp, group, end, &z) loads
// those of the group of 128 at element `group`; z is 0 from `end` on and where masked.
template <class Real, class Source>
ONEBIT_KERNEL Real SumOfLanes(const Warp& warp, const Source& source, ScaleRule rule,
                              uint64_t begin, uint64_t end) {
  Lanes<Quad<Real>> sums;
  for (uint64_t group = begin; group < end; group += kGroup) {
    Lanes<Quad<float>> z;
    source.Load(warp, group, end, &z);
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        sums[lane].at[c] += TermOf(rule, static_cast<Real>(z[lane].at[c]));
      }
    });
  }
  return SumOfQuads(warp, sums);
}

// Returns the largest magnitude as bits, which order like the numbers; NaN is above all.
template <class Source>
ONEBIT_KERNEL uint32_t LargestMagnitude(const Warp& warp, const Source& source, uint64_t begin,
                                        uint64_t end) {
  Lanes<uint32_t> largest;
  for (uint64_t group = begin; group < end; group += kGroup) {
    Lanes<Quad<float>> z;
    source.Load(warp, group, end, &z);
    warp.ForEachLane([&](unsigned lane) {
      ONEBIT_UNROLL
      for (unsigned c = 0; c < kQuad; ++c) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(z[lane].at[c]) & 0x7FFFFFFFu;
        if (magnitude > largest[lane]) largest[lane] = magnitude;
      }
    });
  }
  return LargestOf(warp, largest);
}

ONEBIT_KERNEL uint32_t CountInMask(const Warp& warp, const uint8_t* mask, uint64_t begin,
                                   uint64_t end) {
  if (mask == nullptr) return static_cast<uint32_t>(end - begin);
  Lanes<uint32_t> counts;
  for (uint64_t group = begin; group < end; group += kGroup) {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      counts[lane] += CountOfNibble(PartOfQuad(mask, i, QuadCount(i, end)));
    });
  }
  return SumOf(warp, counts);
}

// True if the sum proves that every z is in range: one out of range would have made it larger.
ONEBIT_KERNEL bool IsSumInRange(float sum) { return sum < 0x1p127f; }

// The sum of a block of any length, in as many passes over memory as it takes. A z must be finite,
// and with a bf16 residual below 2^127.
template <class Source>
ONEBIT_KERNEL BlockSum SumOfBlock(const Warp& warp, const Source& source, ScaleRule rule,
                                  bool has_bf16_residual, uint64_t begin, uint64_t end) {
  const float sum = SumOfLanes<float>(warp, source, rule, begin, end);
  BlockSum result = {.sum = sum};
  result.is_ordinary = IsOrdinarySum(sum);
  if (!result.is_ordinary) result.sum = SumOfLanes<double>(warp, source, rule, begin, end);
  if (!IsSumInRange(sum)) {
    const uint32_t limit = has_bf16_residual ? 0x7F000000u : 0x7F800000u;  // 2^127, infinity
    result.is_in_range = LargestMagnitude(warp, source, begin, end) < limit;
  }
  return result;
}

}  // namespace onebit::kernels::cuda
