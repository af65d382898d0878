// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#pragma once

#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"

namespace onebit::kernels::cuda {

ONEBIT_KERNEL void RunDenseReduce(const Warp& warp, const DenseReduceParams& p) {
  const SourcePackets& from = p.pieces;
  const Output output = ArrayAt(p.output, p.type);
  ForEachRange(warp, p.count, kElementTile, [&](uint64_t begin, uint64_t end) {
    for (uint64_t group = begin; group < end; group += kGroup) {
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = group + kQuad * lane;
        const unsigned count = QuadCount(i, end);
        // Adding to -0 leaves every number unchanged, so the sum starts from the first term.
        Quad<float> sum = {{-0.0f, -0.0f, -0.0f, -0.0f}};
        for (uint32_t rank = 0; rank < from.ranks; ++rank) {
          const std::byte* const elements =
              rank == from.rank ? from.own_source : from.sources + rank * from.stride;
          const Quad<float> term =
              LoadQuad(ArrayAt(static_cast<const void*>(elements), p.type), i, count);
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) sum.at[c] += term.at[c];
        }
        if (p.is_average) {
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) sum.at[c] /= static_cast<float>(from.ranks);
        }
        StoreQuad(sum, output, i, count);
      });
    }
  });
}

}  // namespace onebit::kernels::cuda
