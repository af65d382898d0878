// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Slot: holds one message on its way from one rank to another, with its state machine.
#pragma once

#include <onebit/transport.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace onebit::local {

// The transitions of a slot, and the side that makes them.
//
// An eager message has its payload inside the slot:
//   kFree        -> kEager        sender: header and payload are in the slot
//   kEager       -> kFree         receiver: has copied or dropped them
// An offer leaves its payload in the sender's buffer:
//   kFree        -> kOffered      sender: the header is in the slot
//   kOffered     -> kCopying      receiver: begins to read the buffer
//   kOffered     -> kRefused      receiver: does not want it
//   kOffered     -> kWithdrawn    sender: takes it back before the receiver began
//   kCopying     -> kFree         receiver: has read it all
//   kCopying     -> kRefused      receiver: was aborted while it read
//   kCopying     -> kWithdrawing  sender: wants the buffer back while the receiver reads
//   kWithdrawing -> kFree         receiver: has stopped reading
//   kWithdrawn   -> kFree         receiver: has skipped it
//   kRefused     -> kFree         sender: has given up the send
enum class SlotState : uint32_t {
  kFree = 0,     // the sender may fill it; an offer whose slot is free was taken
  kEager,        // the receiver may read it: header and payload are here
  kOffered,      // the header is here, the payload in the sender's buffer
  kCopying,      // the receiver reads the sender's buffer
  kWithdrawing,  // as kCopying, but the sender wants the buffer back: stop at the next piece
  kWithdrawn,    // the sender took the offer back; the receiver skips and frees the slot
  kRefused,      // the receiver does not want the offer; the sender fails the send, frees the slot
};

// A slot whose bytes are all zero is free: rings are zeroed memory that is touched when used. The
// eager payload follows the slot in memory.
//
// Memory orders: every change of state hands the plain members, or the sender's buffer, to the
// other side. So each store is a release and each load an acquire, unless a comment says why less
// is enough, or more (Free) is needed.
class Slot {
 public:
  // -- either side
  SlotState state() { return ref().load(std::memory_order_acquire); }
  // The latest state in the order of all seq_cst operations; for the race described at Free().
  SlotState state_seq_cst() { return ref().load(std::memory_order_seq_cst); }

  // -- sender, on a free slot
  //
  // Copies the header, and the payload if it has at most `eager_bytes`, and hands the slot over.
  void Publish(const void* header, size_t header_bytes, const void* payload, size_t payload_bytes,
               size_t eager_bytes);

  // -- sender, on an offer
  //
  // Takes an offer back if nobody reads it. False: it was taken, is being read or was refused.
  bool WithdrawOffer();
  // Takes an offer back, asking a reader to stop. True once the receiver no longer reads and never
  // will; false if it is still reading: call again.
  bool Withdraw();
  // Frees a refused slot.
  void ForgetRefusal();

  // -- receiver, on a message
  const void* header() const { return header_; }
  size_t header_bytes() const { return header_bytes_; }
  size_t payload_bytes() const { return payload_bytes_; }
  const void* eager_payload() const { return this + 1; }
  const void* offered_payload() const { return payload_; }
  // Begins to read an offer. False: it was withdrawn.
  bool StartCopying();
  // True if the sender asked for its buffer while it is being read.
  bool is_withdrawing() {
    // relaxed: a hint between two pieces; the hand-over happens in Free().
    return ref().load(std::memory_order_relaxed) == SlotState::kWithdrawing;
  }
  // Gives the slot and the sender's buffer back. seq_cst: the caller then checks if the sender
  // announced a full ring; the sender announces that, then checks the state (also seq_cst). In the
  // single order of these four operations, one side sees the other.
  void Free() { ref().store(SlotState::kFree, std::memory_order_seq_cst); }
  // Tells the sender that its offer will not be taken, or frees the slot if the offer was
  // withdrawn.
  void Refuse();

 private:
  std::atomic_ref<SlotState> ref() { return std::atomic_ref<SlotState>(state_); }

  SlotState state_;
  uint32_t header_bytes_;
  uint64_t payload_bytes_;
  const void* payload_;
  std::byte header_[ONEBIT_TRANSPORT_HEADER_BYTES];
};

static_assert(std::atomic_ref<SlotState>::is_always_lock_free);

}  // namespace onebit::local
