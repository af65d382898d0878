// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction of elements as they are stored. Sums are Highway's; the other loops are
// plain, and the compiler vectorises them for each target. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_DENSE_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_DENSE_WORDS_INL_H_
#undef ONEBIT_KERNELS_CPU_DENSE_WORDS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_DENSE_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/reference/dense_words.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Results stay in the first-level cache until the last rank's elements are in.
inline constexpr size_t kWordTileBytes = 16384;

namespace hn = hwy::HWY_NAMESPACE;

template <DataType kType, bool kAdds>
struct TiledReduction {
  using Word = reference::WordOf<kType>;
  static constexpr size_t kTileWords = kWordTileBytes / sizeof(Word);

  static HWY_INLINE void CombineFrom(size_t i, DenseOp op, const Word* from, size_t count,
                                     Word* HWY_RESTRICT tile) {
    for (; i < count; ++i) {
      Word next;
      memcpy(&next, from + i, sizeof(next));
      tile[i] = reference::Combine<kType, kAdds>(op, tile[i], next);
    }
  }

  // Adds whole vectors and returns how many words that were.
  static HWY_INLINE size_t AddVectors(const Word* from, size_t count, Word* tile) {
    using Number = std::conditional_t<kType == DataType::kF64, double, Word>;
    const hn::ScalableTag<Number> d;
    const auto* const terms = reinterpret_cast<const Number*>(from);
    auto* const sums = reinterpret_cast<Number*>(tile);
    size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, sums + i), hn::LoadU(d, terms + i)), d, sums + i);
    }
    return i;
  }

  // The output may be any of the inputs, so it is written last.
  static HWY_NOINLINE void Run(DenseOp op, const void* const* inputs, size_t ranks,
                               size_t piece_count, size_t divisor, void* output) {
    alignas(64) Word tile[kTileWords];
    for (size_t begin = 0; begin < piece_count; begin += kTileWords) {
      const size_t count = std::min(kTileWords, piece_count - begin);
      memcpy(tile, static_cast<const Word*>(inputs[0]) + begin, count * sizeof(Word));
      for (size_t rank = 1; rank < ranks; ++rank) {
        const Word* const from = static_cast<const Word*>(inputs[rank]) + begin;
        size_t done = 0;
        if constexpr (kAdds) done = AddVectors(from, count, tile);
        CombineFrom(done, op, from, count, tile);
      }
      if constexpr (kAdds) {
        if (op == DenseOp::kAverage) {
          for (size_t i = 0; i < count; ++i) tile[i] = reference::Quotient<kType>(tile[i], divisor);
        }
      }
      memcpy(static_cast<Word*>(output) + begin, tile, count * sizeof(Word));
    }
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
