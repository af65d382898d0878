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

// Messages from one rank to another that have not been taken yet.
inline constexpr uint64_t kSlotsPerRing = 8;

enum class Life : uint32_t { kOpen = 0, kAborted, kClosed };

// One ring of slots for each source rank, filled by that rank alone and emptied by the owner alone;
// the doorbell that wakes the owner; and whether the owner is still there.
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

  // Slot of the message number `index` (0, 1, ...) from `source`.
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

  // The owner's life. Stored with release after the last message and before others are told, loaded
  // with acquire: who sees the end sees all messages sent before it.
  std::atomic<Life>& life() { return life_; }

  // How often some other rank has told this one that its life ended. Spares a look at every life.
  std::atomic<uint32_t>& departures() { return departures_; }

 private:
  static constexpr size_t kRingControlBytes = 64;  // a cache line of its own

  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::byte* ring(int source) { return rings_ + static_cast<size_t>(source) * ring_bytes_; }

  Doorbell doorbell_;
  alignas(64) std::atomic<Life> life_{Life::kOpen};
  std::atomic<uint32_t> departures_{0};
  const Identity identity_;
  const size_t slot_bytes_;
  const size_t ring_bytes_;
  std::unique_ptr<void, FreeMemory> memory_;
  std::byte* rings_;  // into memory_, aligned to a cache line
};

}  // namespace onebit::local
