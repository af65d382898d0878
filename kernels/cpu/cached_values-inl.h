// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes values that are in a cache: as elements of an output, or as changes of what is held.
// Per-target header.
#if defined(ONEBIT_KERNELS_CPU_CACHED_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_CACHED_VALUES_INL_H_
#undef ONEBIT_KERNELS_CPU_CACHED_VALUES_INL_H_
#else
#define ONEBIT_KERNELS_CPU_CACHED_VALUES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Stores the first `count` elements of a vector.
template <DataType kType>
HWY_INLINE void StoreFirst(VF value, size_t count, ElementOf<kType>* output) {
  LastVector<ElementOf<kType>> last;
  StoreF32As<kType>(value, last.element, 0);
  last.Return(output, 0, count);
}

// Stores elements of `from`, 0 where masked; their places beyond `count` may hold anything.
template <DataType kType>
HWY_NOINLINE void StoreOutput(const float* from, const uint8_t* mask, size_t count,
                              bool is_streamed, ElementOf<kType>* output,
                              LargestMagnitude<kType>& largest_in_memory) {
  LargestMagnitude<kType> largest = largest_in_memory;
  const auto value_at = [&](size_t i) HWY_ATTR {
    const VF value = hn::Load(kF32, from + i);
    return mask == nullptr ? value : hn::IfThenElseZero(MaskOfBits(mask, i), value);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF value = value_at(i);
    largest.Add(value);
    if (is_streamed) {
      StoreF32As<kType, true>(value, output, i);
    } else {
      StoreF32As<kType>(value, output, i);
    }
  }
  if (i != count) {
    const VF value = hn::IfThenElseZero(hn::FirstN(kF32, count - i), value_at(i));
    largest.Add(value);
    StoreFirst<kType>(value, count - i, output + i);
  }
  largest_in_memory = largest;
}

// Replaces values by what is held after it has taken them up, and writes that.
inline HWY_NOINLINE void TakeUpDelta(const float* held_in, const uint8_t* mask, size_t count,
                                     float* values, float* held_out) {
  const auto held_after = [&](VF held, size_t i) HWY_ATTR {
    held = hn::Sub(held, hn::Load(kF32, values + i));
    if (mask != nullptr) held = hn::IfThenElseZero(MaskOfBits(mask, i), held);
    hn::Store(hn::Sub(hn::Zero(kF32), held), kF32, values + i);
    return held;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(held_after(hn::LoadU(kF32, held_in + i), i), kF32, held_out + i);
  }
  if (i == count) return;
  LastVector<float> last;
  last.Take(held_in, i, count - i);
  hn::Store(held_after(hn::Load(kF32, last.element), i), kF32, last.element);
  last.Return(held_out, i, count - i);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
