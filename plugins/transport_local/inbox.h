// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Inbox: the part of an endpoint that other ranks touch.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "plugins/transport_local/doorbell.h"
#include "plugins/transport_local/slot.h"

namespace onebit::local {

// Messages from one rank to another that may be waiting to be taken.
inline constexpr uint64_t kSlotsPerRing = 8;

enum class InboxState : uint32_t { kOpen = 0, kAborted, kClosed };

// Has one ring of slots for each source rank, which only that rank fills and only the owner
// empties; the doorbell that wakes the owner; and a flag that says if the owner is still there.
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

  // The slot of message number `index` (0, 1, ...) from `source`.
  Slot& slot(int source, uint64_t index) {
    return *reinterpret_cast<Slot*>(ring(source) + kRingControlBytes +
                                    (index % kSlotsPerRing) * slot_bytes_);
  }

  // Set by `source` when its ring was full, cleared by the owner, who then rings the doorbell of
  // `source`. seq_cst for the reason given at Slot::Free.
  std::atomic_ref<uint32_t> source_lacks_room(int source) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(ring(source)));
  }

  Doorbell& doorbell() { return doorbell_; }

  // The owner's state. Stored with release after the last message and before others are told,
  // loaded with acquire: a rank that sees the end sees all messages sent before it.
  std::atomic<InboxState>& state() { return state_; }

  // Counts the other ranks' announcements of their ends. Saves reading every rank's state.
  std::atomic<uint32_t>& departures() { return departures_; }

 private:
  static constexpr size_t kRingControlBytes = 64;  // a separate cache line

  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::byte* ring(int source) { return rings_ + static_cast<size_t>(source) * ring_bytes_; }

  Doorbell doorbell_;
  alignas(64) std::atomic<InboxState> state_{InboxState::kOpen};
  std::atomic<uint32_t> departures_{0};
  const Identity identity_;
  const size_t slot_bytes_;
  const size_t ring_bytes_;
  std::unique_ptr<void, FreeMemory> memory_;
  std::byte* rings_;  // points into memory_, aligned to a cache line
};

}  // namespace onebit::local
