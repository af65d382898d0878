// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Allocates the memory of an inbox.
#include "plugins/transport_local/inbox.h"

#include <new>

namespace onebit::local {
namespace {

constexpr size_t kCacheLineBytes = 64;
static_assert(plugin::FrameRing::BytesOf(1024) % kCacheLineBytes == 0);

}  // namespace

Inbox::Inbox(const Identity& identity, size_t eager_bytes)
    : identity_(identity),
      capacity_(plugin::FrameRing::CapacityFor(eager_bytes)),
      bytes_(kOffersBytes + plugin::FrameRing::BytesOf(capacity_)) {
  // calloc takes large blocks from pages that the system zeroes when they are first touched. Zeros
  // are empty rings, and offers of nothing.
  const size_t bytes = static_cast<size_t>(identity.nranks) * bytes_ + kCacheLineBytes;
  memory_.reset(std::calloc(bytes, 1));
  if (memory_ == nullptr) throw std::bad_alloc();
  void* aligned = memory_.get();
  size_t space = bytes;
  aligned_ =
      static_cast<std::byte*>(std::align(kCacheLineBytes, bytes - kCacheLineBytes, aligned, space));
}

}  // namespace onebit::local
