// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Copies that bypass the caches.
#include "kernels/copy.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void CopyPastCaches(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const hn::ScalableTag<uint8_t> kBytes;
  auto* const target = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  size_t at = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(target) % kLine);
  if (at != 0) memcpy(target, source, at);
  for (; bytes - at >= kLine; at += kLine) {
    for (size_t part = 0; part < kLine; part += hn::Lanes(kBytes)) {
      hn::Stream(hn::LoadU(kBytes, source + at + part), kBytes, target + at + part);
    }
  }
  // Streaming stores may be seen after later ones, such as those that hand the payload over.
  hwy::FlushStream();
  if (at != bytes) memcpy(target + at, source + at, bytes - at);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(CopyPastCaches);

void CopyPastCaches(void* to, const void* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(CopyPastCaches)(to, from, bytes);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
