// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies the last, partial vector of an array: nothing beyond the array may be touched. Per-target
// header.
#if defined(ONEBIT_KERNELS_CPU_LAST_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LAST_VECTOR_INL_H_
#undef ONEBIT_KERNELS_CPU_LAST_VECTOR_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LAST_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// A vector of an array that ends before the vector does, or is absent; the rest is zeros.
template <class Element>
struct alignas(64) LastVector {
  Element element[kLanes] = {};

  // Copies `count` elements, unless `array` is null, and returns their address.
  Element* Take(const void* array, size_t begin, size_t count) {
    if (array == nullptr) return nullptr;
    memcpy(element, static_cast<const Element*>(array) + begin, count * sizeof(Element));
    return element;
  }
  void Return(void* array, size_t begin, size_t count) const {
    memcpy(static_cast<Element*>(array) + begin, element, count * sizeof(Element));
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
