// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computes a block's sum and scale from its lanes. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_SUM_INL_H_
#undef ONEBIT_KERNELS_CPU_SUM_INL_H_
#else
#define ONEBIT_KERNELS_CPU_SUM_INL_H_
#endif

#include <cmath>
#include <cstddef>

#include <hwy/highway.h>

#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float SumHalves(DF, VF v) { return hn::GetLane(v); }
#else
template <class D>
HWY_INLINE float SumHalves(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return SumHalves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// Adds the upper half of the lanes to the lower half until one is left.
HWY_INLINE float TreeSum(const SumLanes& lanes) {
  constexpr size_t kVectors = kSumLanes / kLanes;
  VF sum[kVectors / 2];
  HWY_UNROLL(16)
  for (size_t k = 0; k < kVectors / 2; ++k) {
    sum[k] = hn::Add(hn::Load(kF32, lanes.lane + k * kLanes),
                     hn::Load(kF32, lanes.lane + (k + kVectors / 2) * kLanes));
  }
  for (size_t width = kVectors / 4; width >= 1; width /= 2) {
    for (size_t k = 0; k < width; ++k) sum[k] = hn::Add(sum[k], sum[k + width]);
  }
  return SumHalves(kF32, sum[0]);
}

// A sum in this range proves that every z is finite, below 2^127 and summed without overflow (terms
// are not negative, so no sum is below any of its terms) and that underflow cannot have mattered.
// All others, 0 included, are computed again.
HWY_INLINE bool IsSafeSum(float sum) { return sum >= 0x1p-100f && sum < 0x1p127f; }

// True if z[0, count), padded with zeros to whole vectors, contains only +0 and -0.
HWY_INLINE bool IsAllZero(const float* z, size_t count) {
  VU32 any = hn::Zero(kU32);
  for (size_t i = 0; i < count; i += kLanes) {
    any = hn::Or(any, hn::BitCast(kU32, hn::Load(kF32, z + i)));
  }
  return hn::AllTrue(kU32, hn::Eq(hn::ShiftLeft<1>(any), hn::Zero(kU32)));
}

// Repeats the sum in fp64. This is rare, so the code is plain, except for blocks of zeros.
struct WideSum {
  double lane[kSumLanes] = {};
  float largest = 0;
  bool is_finite = true;

  void Add(const float* z, size_t count, ScaleRule rule) {
    if (IsAllZero(z, count)) return;
    for (size_t i = 0; i < count; ++i) {
      const double wide = z[i];
      lane[i % kSumLanes] += rule == ScaleRule::kL2 ? wide * wide : std::fabs(wide);
      is_finite = is_finite && std::isfinite(z[i]);
      largest = std::fabs(z[i]) > largest ? std::fabs(z[i]) : largest;
    }
  }

  double Total() {
    for (size_t width = kSumLanes / 2; width >= 1; width /= 2) {
      for (size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    }
    return lane[0];
  }

  // Implements the rule on non-finite values in kernels.h.
  bool IsInRange(Residual residual) const {
    return is_finite && (residual != Residual::kBf16 || largest < 0x1p127f);
  }
};

struct BlockSum {
  double sum = 0;
  bool is_in_range = true;
};

// `narrow` is the fp32 sum, and `wide` the same sum repeated in fp64.
HWY_INLINE BlockSum ChooseSumOf(float narrow, WideSum& wide, Residual residual) {
  const bool is_narrow_good = std::isfinite(narrow) && narrow >= 0x1p-100f;
  return {is_narrow_good ? static_cast<double>(narrow) : wide.Total(), wide.IsInRange(residual)};
}

HWY_INLINE float ScaleOfSum(double sum, size_t element_count, ScaleRule rule) {
  if (element_count == 0) return 0;
  const double mean = sum / static_cast<double>(element_count);
  return static_cast<float>(rule == ScaleRule::kL2 ? std::sqrt(mean) : mean);
}

HWY_INLINE size_t CountBits(const uint8_t* padded, size_t bit_count) {
  size_t count = 0;
  for (size_t i = 0; i < bit_count; i += 64) {
    uint64_t word;
    memcpy(&word, padded + i / 8, sizeof(word));
    count += static_cast<size_t>(hwy::PopCount(word));
  }
  return count;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
