// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/common/frame_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace onebit::plugin {

size_t FrameRing::CapacityFor(size_t payload_bytes) {
  constexpr size_t kSmallest = 16u << 10;
  return std::bit_ceil(std::max(kSmallest, 4 * payload_bytes));
}

void FrameRing::CopyIn(uint64_t at, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t first = std::min(bytes.size(), capacity_ - at % capacity_);
  std::memcpy(At(at), bytes.data(), first);
  if (first < bytes.size()) {
    std::memcpy(data_, bytes.data() + first, bytes.size() - first);
  }
}

void FrameRing::CopyOut(uint64_t at, std::byte* target, size_t bytes) const {
  if (bytes == 0) return;
  const size_t first = std::min(bytes, capacity_ - at % capacity_);
  std::memcpy(target, At(at), first);
  if (first < bytes) std::memcpy(target + first, data_, bytes - first);
}

FrameRing::Result FrameRing::Write(onebitFrameKind kind, std::span<const std::byte> header,
                                   std::span<const std::byte> payload) {
  const size_t room = RoomOf(header.size(), payload.size());
  const size_t most = kind == onebitFrameLong ? capacity_ - short_reserve() : capacity_;
  // The first look is at what was freed before; the second, after the flag, cannot miss what is
  // freed from then on.
  for (int look = 0;; ++look) {
    // acquire: the consumer has copied what it freed.
    const uint64_t used = position_ - memory_->read.load(std::memory_order_acquire);
    if (used > capacity_) return Result::kBroken;
    if (used + room <= most) break;
    if (look != 0) {
      lacks_room_ = true;
      return Result::kNothing;
    }
    // This exchange and that of Release are ordered, and the later one sees the other: either
    // Release finds the flag, or the next look sees the room.
    memory_->producer_waits.exchange(1, std::memory_order_acq_rel);
  }
  const uint32_t sizes[] = {static_cast<uint32_t>(header.size()),
                            static_cast<uint32_t>(payload.size())};
  CopyIn(position_, std::as_bytes(std::span(sizes)));
  CopyIn(position_ + kSizesBytes, header);
  CopyIn(position_ + kSizesBytes + header.size(), payload);
  position_ += room;
  // release: the consumer sees the frame.
  memory_->written.store(position_, std::memory_order_release);
  return Result::kDone;
}

FrameRing::Result FrameRing::Peek(Frame* frame) {
  // acquire: the frame is there.
  const uint64_t used = memory_->written.load(std::memory_order_acquire) - position_;
  if (used == 0) return Result::kNothing;
  if (used > capacity_ || used < kSizesBytes) return Result::kBroken;
  uint32_t sizes[2];
  CopyOut(position_, reinterpret_cast<std::byte*>(sizes), sizeof sizes);
  if (sizes[0] > sizeof frame->header || sizes[1] > PieceBytes(capacity_) ||
      RoomOf(sizes[0], sizes[1]) > used) {
    return Result::kBroken;
  }
  frame->header_bytes = sizes[0];
  frame->payload_bytes = sizes[1];
  CopyOut(position_ + kSizesBytes, frame->header, sizes[0]);
  return Result::kDone;
}

const std::byte* FrameRing::PayloadInPlace(const Frame& frame) const {
  const uint64_t at = position_ + kSizesBytes + frame.header_bytes;
  return at % capacity_ + frame.payload_bytes <= capacity_ ? At(at) : nullptr;
}

void FrameRing::CopyPayload(const Frame& frame, std::byte* target) const {
  CopyOut(position_ + kSizesBytes + frame.header_bytes, target, frame.payload_bytes);
}

bool FrameRing::Release(const Frame& frame) {
  position_ += RoomOf(frame.header_bytes, frame.payload_bytes);
  // release: the frame was copied before its room is used again.
  memory_->read.store(position_, std::memory_order_release);
  return memory_->producer_waits.exchange(0, std::memory_order_acq_rel) != 0;  // see Write
}

}  // namespace onebit::plugin
