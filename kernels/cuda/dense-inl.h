// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"
#include "kernels/reference/dense_words.h"

namespace onebit::kernels::cuda {

ONEBIT_KERNEL const std::byte* ElementsOf(const SourcePackets& from, uint32_t rank) {
  return rank == from.rank ? from.own_source : from.sources + rank * from.stride;
}

ONEBIT_KERNEL uint64_t DivisorOf(const DenseReduceParams& p) {
  return p.terms.divisor == 0 ? p.pieces.ranks : p.terms.divisor;
}

ONEBIT_KERNEL void RunDenseReduce(const Warp& warp, const DenseReduceParams& p) {
  const SourcePackets& from = p.pieces;
  const Output output = ArrayAt(p.output, p.terms.is_output_f32 ? DataType::kF32 : p.type);
  ForEachRange(warp, p.count, kElementTile, [&](uint64_t begin, uint64_t end) {
    for (uint64_t group = begin; group < end; group += kGroup) {
      warp.ForEachLane([&](unsigned lane) {
        const uint64_t i = group + kQuad * lane;
        const unsigned count = QuadCount(i, end);
        // Adding to -0 leaves every number unchanged, so the sum starts from the first term.
        Quad<float> sum = {{-0.0f, -0.0f, -0.0f, -0.0f}};
        for (uint32_t rank = 0; rank < from.ranks; ++rank) {
          const void* const elements = ElementsOf(from, rank);
          Quad<float> term = LoadQuad(ArrayAt(elements, p.type), i, count);
          if (p.terms.factors != nullptr) {
            ONEBIT_UNROLL
            for (unsigned c = 0; c < kQuad; ++c) term.at[c] *= p.terms.factors[rank];
          }
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) sum.at[c] += term.at[c];
        }
        if (p.op == DenseOp::kAverage) {
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) sum.at[c] /= static_cast<float>(DivisorOf(p));
        }
        StoreQuad(sum, output, i, count);
      });
    }
  });
}

// A lane has elements 32 apart, so that the lanes of a warp touch neighbours at any size of them.
template <DataType kType, bool kAdds>
struct WarpReduction {
  using Word = reference::WordOf<kType>;

  ONEBIT_KERNEL static void Run(DenseOp op, const Warp& warp, const DenseReduceParams& p) {
    const SourcePackets& from = p.pieces;
    Word* const output = static_cast<Word*>(p.output);
    ForEachRange(warp, p.count, kElementTile, [&](uint64_t begin, uint64_t end) {
      for (uint64_t group = begin; group < end; group += kGroup) {
        warp.ForEachLane([&](unsigned lane) {
          const uint64_t i = group + lane;
          Quad<Word> result;
          for (uint32_t rank = 0; rank < from.ranks; ++rank) {
            const Word* const elements = reinterpret_cast<const Word*>(ElementsOf(from, rank));
            ONEBIT_UNROLL
            for (unsigned c = 0; c < kQuad; ++c) {
              if (i + c * kLanes >= end) continue;
              const Word next = elements[i + c * kLanes];
              result.at[c] =
                  rank == 0 ? next : reference::Combine<kType, kAdds>(op, result.at[c], next);
            }
          }
          ONEBIT_UNROLL
          for (unsigned c = 0; c < kQuad; ++c) {
            if (i + c * kLanes >= end) continue;
            if constexpr (kAdds) {
              if (op == DenseOp::kAverage) {
                result.at[c] = reference::Quotient<kType>(result.at[c], DivisorOf(p));
              }
            }
            output[i + c * kLanes] = result.at[c];
          }
        });
      }
    });
  }
};

ONEBIT_KERNEL void RunDenseReduceWords(const Warp& warp, const DenseReduceParams& p) {
  reference::ReduceWords<WarpReduction>(p.type, p.op, warp, p);
}

}  // namespace onebit::kernels::cuda
