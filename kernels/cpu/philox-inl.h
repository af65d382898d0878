// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The random numbers of reference/philox.h, for many elements at once. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_PHILOX_INL_H_
#undef ONEBIT_KERNELS_CPU_PHILOX_INL_H_
#else
#define ONEBIT_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/philox.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// The draws of a chunk, which begins within the first four.
struct alignas(64) ChunkDraws {
  // A vector of counters yields four vectors of draws, the last of them beyond the chunk.
  uint32_t draw[kChunk + 4 * HWY_MAX(kLanes, 4)];
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE const uint32_t* FillDraws(const Draws& draws, uint64_t index, size_t count,
                                     ChunkDraws& out) {
  for (size_t i = 0; i < count; ++i) out.draw[i] = reference::DrawOf(draws, index + i);
  return out.draw;
}
#else
using DU64 = hn::Repartition<uint64_t, DF>;
inline constexpr DU64 kU64{};

// Computes the draws of elements [index, index + count) of a piece, count <= kChunk, and returns
// the address of the first.
static HWY_NOINLINE const uint32_t* FillDraws(const Draws& draws, uint64_t index, size_t count,
                                              ChunkDraws& out) {
  using V = hn::Vec<DU64>;
  constexpr size_t kCounters = kLanes / 2;  // per vector
  const uint64_t first = draws.first + index;
  const size_t skipped = first % 4;
  const VU32 multiplier0 = hn::Set(kU32, reference::kPhiloxMultiplier[0]);
  const VU32 multiplier1 = hn::Set(kU32, reference::kPhiloxMultiplier[1]);
  // Interleaving works on pairs of 64 bits: the even lanes hold the first half of the counters, so
  // that their words come out in order.
  alignas(64) uint64_t order[kCounters];
  for (size_t k = 0; k < kCounters; ++k) order[k] = k / 2 + (k % 2) * (kCounters / 2);
  const V lane_counter = hn::Load(kU64, order);
  for (size_t i = 0; i < skipped + count; i += 4 * kCounters) {
    const V counter = hn::Add(lane_counter, hn::Set(kU64, first / 4 + i / 4));
    // Words are the lower halves of 64-bit lanes, whose upper halves are not used.
    V word0 = counter;
    V word1 = hn::ShiftRight<32>(counter);
    V word2 = hn::Set(kU64, draws.epoch);
    V word3 = hn::Set(kU64, draws.tensor);
    uint32_t key0 = reference::LowKey(draws);
    uint32_t key1 = reference::HighKey(draws);
    HWY_UNROLL(10)
    for (int round = 0; round < reference::kPhiloxRounds; ++round) {
      const V product0 = hn::MulEven(hn::BitCast(kU32, word0), multiplier0);
      const V product1 = hn::MulEven(hn::BitCast(kU32, word2), multiplier1);
      word0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), word1), hn::Set(kU64, key0));
      word1 = product1;
      word2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), word3), hn::Set(kU64, key1));
      word3 = product0;
      key0 += reference::kPhiloxKeyStep[0];
      key1 += reference::kPhiloxKeyStep[1];
    }
    const V lower_half = hn::Set(kU64, 0xFFFFFFFFu);
    const V words01 = hn::Or(hn::And(word0, lower_half), hn::ShiftLeft<32>(word1));
    const V words23 = hn::Or(hn::And(word2, lower_half), hn::ShiftLeft<32>(word3));
    const V lower = hn::InterleaveLower(kU64, words01, words23);
    const V upper = hn::InterleaveUpper(kU64, words01, words23);
    hn::Store(hn::BitCast(kU32, lower), kU32, out.draw + i);
    hn::Store(hn::BitCast(kU32, upper), kU32, out.draw + i + kLanes);
  }
  return out.draw + skipped;
}
#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
