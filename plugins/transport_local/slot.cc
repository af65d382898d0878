// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transitions of a slot that need more than a store.
#include "plugins/transport_local/slot.h"

#include <cstring>

namespace onebit::local {

void Slot::Publish(const void* header, size_t header_bytes, const void* payload,
                   size_t payload_bytes, size_t eager_bytes) {
  header_bytes_ = static_cast<uint32_t>(header_bytes);
  payload_bytes_ = payload_bytes;
  if (header_bytes != 0) std::memcpy(header_, header, header_bytes);
  const bool is_eager = payload_bytes <= eager_bytes;
  if (!is_eager) {
    payload_ = payload;
  } else if (payload_bytes != 0) {
    std::memcpy(this + 1, payload, payload_bytes);
  }
  ref().store(is_eager ? SlotState::kEager : SlotState::kOffered, std::memory_order_release);
}

bool Slot::WithdrawOffer() {
  SlotState expected = SlotState::kOffered;
  // relaxed on failure: nothing is read; the caller checks the state again.
  return ref().compare_exchange_strong(expected, SlotState::kWithdrawn, std::memory_order_acq_rel,
                                       std::memory_order_relaxed);
}

bool Slot::Withdraw() {
  while (true) {
    switch (state()) {
      case SlotState::kOffered:
        if (WithdrawOffer()) return true;
        break;
      case SlotState::kCopying: {
        SlotState expected = SlotState::kCopying;
        // relaxed: a request, which hands nothing over. A failure means that the reader has just
        // finished.
        if (ref().compare_exchange_strong(expected, SlotState::kWithdrawing,
                                          std::memory_order_relaxed)) {
          return false;
        }
        break;
      }
      case SlotState::kWithdrawing:
        return false;
      case SlotState::kRefused:
        ForgetRefusal();
        return true;
      case SlotState::kFree:
      case SlotState::kEager:
      case SlotState::kWithdrawn:
        return true;
    }
  }
}

void Slot::ForgetRefusal() {
  // relaxed: the sender keeps the slot; the receiver reads nothing from a free slot.
  ref().store(SlotState::kFree, std::memory_order_relaxed);
}

bool Slot::StartCopying() {
  SlotState expected = SlotState::kOffered;
  // acquire alone: the buffer's content came with the state that announced the header; the slot is
  // not handed over.
  return ref().compare_exchange_strong(expected, SlotState::kCopying, std::memory_order_acquire,
                                       std::memory_order_relaxed);
}

void Slot::Refuse() {
  SlotState seen = state();
  while (seen == SlotState::kOffered || seen == SlotState::kCopying) {
    if (ref().compare_exchange_weak(seen, SlotState::kRefused, std::memory_order_release,
                                    std::memory_order_acquire)) {
      return;
    }
  }
  Free();  // withdrawn or withdrawing: the sender has already given up this send
}

}  // namespace onebit::local
