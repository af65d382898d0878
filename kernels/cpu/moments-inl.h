// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Vectors of the formulas that all optimizers share. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_MOMENTS_INL_H_
#undef ONEBIT_KERNELS_CPU_MOMENTS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_MOMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

HWY_INLINE VF NextMomentum(float beta1, float one_minus_beta1, VF m, VF g) {
  const VF kept = hn::Mul(hn::Set(kF32, beta1), m);
  return hn::Add(kept, hn::Mul(hn::Set(kF32, one_minus_beta1), g));
}

HWY_INLINE VF NextVariance(float beta2, float one_minus_beta2, VF v, VF g) {
  const VF kept = hn::Mul(hn::Set(kF32, beta2), v);
  return hn::Add(kept, hn::Mul(hn::Mul(hn::Set(kF32, one_minus_beta2), g), g));
}

HWY_INLINE VF Denominator(VF v, float correction, float floor, float eps) {
  const VF root = hn::Sqrt(hn::Mul(v, hn::Set(kF32, correction)));
  const VF least = hn::Set(kF32, floor);
  return hn::Add(hn::IfThenElse(hn::Lt(root, least), least, root), hn::Set(kF32, eps));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
