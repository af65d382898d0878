// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Allocates the memory of an inbox.
#include "plugins/transport_local/inbox.h"

#include <new>

namespace onebit::local {
namespace {

constexpr size_t kCacheLineBytes = 64;

size_t RoundUpToCacheLine(size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

Inbox::Inbox(const Identity& identity, size_t eager_bytes)
    : identity_(identity),
      slot_bytes_(RoundUpToCacheLine(sizeof(Slot) + eager_bytes)),
      ring_bytes_(kRingControlBytes + kSlotsPerRing * slot_bytes_) {
  // calloc takes large blocks from pages that the system zeroes when they are first touched.
  const size_t bytes = static_cast<size_t>(identity.nranks) * ring_bytes_ + kCacheLineBytes;
  memory_.reset(std::calloc(bytes, 1));
  if (memory_ == nullptr) throw std::bad_alloc();
  void* aligned = memory_.get();
  size_t space = bytes;
  rings_ =
      static_cast<std::byte*>(std::align(kCacheLineBytes, bytes - kCacheLineBytes, aligned, space));
}

}  // namespace onebit::local
