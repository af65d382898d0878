// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decides when stores bypass the caches. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_STREAM_INL_H_
#undef ONEBIT_KERNELS_CPU_STREAM_INL_H_
#else
#define ONEBIT_KERNELS_CPU_STREAM_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Outputs of at least this size are assumed to leave the caches before they are read again.
inline constexpr size_t kStreamBytes = size_t{4} << 20;

inline bool ShouldStream(const void* output, size_t bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<uintptr_t>(output) % 64 == 0;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
