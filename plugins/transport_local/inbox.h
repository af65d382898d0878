// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Inbox: the part of an endpoint that other ranks touch.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "plugins/common/frame_ring.h"
#include "plugins/transport_local/doorbell.h"
#include "plugins/transport_local/offer.h"

namespace onebit::local {

// Has one ring of frames and one set of offers for each source rank, which only that rank fills and
// only the owner empties; the doorbell that wakes the owner; and a flag that says if the owner is
// still there.
//
// Lifetime is shared: every endpoint of the communicator holds every inbox, so that ranks can close
// in any order while others still write here or ring.
class Inbox {
 public:
  struct Identity {
    int rank;
    int nranks;
    uint64_t comm_id;
    bool operator==(const Identity&) const = default;
  };

  // Throws std::bad_alloc. Memory is zeroed on demand: a ring costs address space until it is used.
  Inbox(const Identity& identity, size_t eager_bytes);

  const Identity& identity() const { return identity_; }

  // An end of the ring from `source`. The owner has one, and the source another.
  plugin::FrameRing ring(int source) {
    return {reinterpret_cast<plugin::FrameRing::Memory*>(memory_of(source) + kOffersBytes),
            capacity_};
  }
  size_t ring_capacity() const { return capacity_; }
  Offer& offer(int source, int index) { return reinterpret_cast<Offer*>(memory_of(source))[index]; }

  Doorbell& doorbell() { return doorbell_; }

  // Set by the owner, with release, after its last frame and before it tells the others; loaded
  // with acquire: a rank that sees the end sees all frames sent before it.
  std::atomic<bool>& is_closed() { return is_closed_; }

  // Counts the other ranks' announcements of their ends. Saves reading every rank's state.
  std::atomic<uint32_t>& departures() { return departures_; }

 private:
  static constexpr size_t kOffersBytes =
      (sizeof(Offer) * ONEBIT_TRANSPORT_OFFERS + 63) / 64 * 64;  // whole cache lines

  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::byte* memory_of(int source) { return aligned_ + static_cast<size_t>(source) * bytes_; }

  Doorbell doorbell_;
  alignas(64) std::atomic<bool> is_closed_{false};
  std::atomic<uint32_t> departures_{0};
  const Identity identity_;
  const size_t capacity_;
  const size_t bytes_;  // offers and ring of one source
  std::unique_ptr<void, FreeMemory> memory_;
  std::byte* aligned_;  // points into memory_, aligned to a cache line
};

}  // namespace onebit::local
