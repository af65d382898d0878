// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies parameters in the type that a model computes with. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_COPY_INL_H_
#undef ONEBIT_KERNELS_CPU_COPY_INL_H_
#else
#define ONEBIT_KERNELS_CPU_COPY_INL_H_
#endif

#include <cstddef>

#include <hwy/highway.h>

#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <DataType kType>
HWY_INLINE void WriteCopyAs(const float* x, size_t count, void* copy) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) StoreF32As<kType>(hn::LoadU(kF32, x + i), copy, i);
  if (whole == count) return;
  LastVector<float> last;
  last.Take(x, whole, count - whole);
  LastVector<ElementOf<kType>> last_copy;
  StoreF32As<kType>(hn::Load(kF32, last.element), last_copy.element, 0);
  last_copy.Return(copy, whole, count - whole);
}

// Writes element i of x, rounded, as element i of `copy`.
HWY_INLINE void WriteCopy(const float* x, size_t count, DataType type, void* copy) {
  switch (type) {
    case DataType::kF32:
      return WriteCopyAs<DataType::kF32>(x, count, copy);
    case DataType::kF16:
      return WriteCopyAs<DataType::kF16>(x, count, copy);
    case DataType::kBf16:
      return WriteCopyAs<DataType::kBf16>(x, count, copy);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
