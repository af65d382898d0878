// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// FrameRing: frames from one thread to another, in the memory of one process or in memory that two
// processes map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <onebit/transport.h>

#include "plugins/common/frame_transport.h"

namespace onebit::plugin {

// One producer, one consumer. Whatever another process writes into the memory, neither end reads or
// writes outside of it: indices and sizes are checked before they are used, and each is read once.
class FrameRing {
 public:
  // The memory that both ends share, all zero at first. `capacity` bytes of data follow.
  struct Memory {
    alignas(64) std::atomic<uint64_t> written;  // bytes, by the producer
    alignas(64) std::atomic<uint64_t> read;     // bytes, by the consumer
    // Nonzero: the producer waits for room, and the consumer rings its doorbell.
    alignas(64) std::atomic<uint32_t> producer_waits;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  static constexpr size_t BytesOf(size_t capacity) { return sizeof(Memory) + capacity; }

  // A power of two in which a payload of `payload_bytes` fits four times.
  static size_t CapacityFor(size_t payload_bytes);
  // The largest payload of a frame.
  static size_t PieceBytes(size_t capacity) { return capacity / 4; }

  enum class Result { kDone, kNothing, kBroken };

  // `memory` has BytesOf(capacity) bytes.
  FrameRing(Memory* memory, size_t capacity)
      : memory_(memory), data_(reinterpret_cast<std::byte*>(memory + 1)), capacity_(capacity) {}

  // The producer's half. kNothing: there is no room; the consumer will ring.
  Result Write(onebitFrameKind kind, std::span<const std::byte> header,
               std::span<const std::byte> payload);

  // The consumer's half: looks at the next frame. kNothing: there is none.
  struct Frame {
    uint32_t header_bytes = 0;
    uint32_t payload_bytes = 0;
    std::byte header[ONEBIT_TRANSPORT_FRAME_HEADER_BYTES];
  };
  Result Peek(Frame* frame);
  // The payload of the frame that Peek found, in place, if it does not wrap around; else null.
  const std::byte* PayloadInPlace(const Frame& frame) const;
  void CopyPayload(const Frame& frame, std::byte* target) const;
  // Frees the frame's room. True if the producer waits for it.
  bool Release(const Frame& frame);

  // The producer's half: true once the consumer has made room after Write returned kNothing.
  // acquire: see Release.
  bool TakeRoom() {
    if (!lacks_room_ || memory_->producer_waits.load(std::memory_order_acquire) != 0) return false;
    lacks_room_ = false;
    return true;
  }

  bool has_frames() const { return memory_->written.load(std::memory_order_acquire) != position_; }

 private:
  static constexpr size_t kSizesBytes = 2 * sizeof(uint32_t);
  static size_t RoomOf(size_t header_bytes, size_t payload_bytes) {
    return (kSizesBytes + header_bytes + payload_bytes + 7) / 8 * 8;
  }
  void CopyIn(uint64_t at, std::span<const std::byte> bytes);
  void CopyOut(uint64_t at, std::byte* target, size_t bytes) const;
  std::byte* At(uint64_t position) const { return data_ + position % capacity_; }
  // Room that long frames leave for short ones.
  size_t short_reserve() const { return capacity_ / 8; }

  Memory* const memory_;
  std::byte* const data_;
  const size_t capacity_;
  // This end's own count: bytes written, or bytes read. The other process cannot change it.
  uint64_t position_ = 0;
  bool lacks_room_ = false;  // Write has returned kNothing
};

// Delivers frames of a rank's ring, at most `most`. `scratch` holds a payload that wraps around;
// `ring_doorbell` wakes the rank, which waits for room. kNothing: there was none.
template <typename RingDoorbell>
FrameRing::Result Deliver(FrameRing* ring, int most, std::byte* scratch, int rank,
                          const FrameSink& sink, RingDoorbell ring_doorbell) {
  FrameRing::Frame frame;
  for (int frames = 0; frames < most; ++frames) {
    const FrameRing::Result found = ring->Peek(&frame);
    if (found == FrameRing::Result::kBroken) return found;
    if (found == FrameRing::Result::kNothing) return frames == 0 ? found : FrameRing::Result::kDone;
    const std::byte* payload = ring->PayloadInPlace(frame);
    if (payload == nullptr) {
      ring->CopyPayload(frame, scratch);
      payload = scratch;
    }
    sink.OnFrame(rank, frame.header, frame.header_bytes, payload, frame.payload_bytes);
    if (ring->Release(frame)) ring_doorbell();
  }
  return FrameRing::Result::kDone;
}

}  // namespace onebit::plugin
