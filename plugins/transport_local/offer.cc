// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/transport_local/offer.h"

#include <algorithm>
#include <cstring>

namespace onebit::local {

void Offer::Set(const void* payload, size_t bytes) {
  payload_ = payload;
  bytes_ = bytes;
  state_.store(State::kOffered, std::memory_order_release);
}

bool Offer::Recall() {
  State seen = state_.load(std::memory_order_acquire);
  while (true) {
    if (seen == State::kNone) return true;
    if (seen == State::kStopping) return false;
    const State next = seen == State::kOffered ? State::kNone : State::kStopping;
    if (state_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      return next == State::kNone;
    }
  }
}

Offer::Pulled Offer::Pull(void* target, size_t bytes) {
  State expected = State::kOffered;
  if (!state_.compare_exchange_strong(expected, State::kReading, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
    return Pulled::kRecalled;
  }
  size_t copied = 0;
  // relaxed: the hand-over happens at the end.
  while (copied < bytes && bytes == bytes_ &&
         state_.load(std::memory_order_relaxed) == State::kReading) {
    const size_t piece = std::min(kPieceBytes, bytes - copied);
    std::memcpy(static_cast<std::byte*>(target) + copied,
                static_cast<const std::byte*>(payload_) + copied, piece);
    copied += piece;
  }
  const bool was_recalled =
      state_.exchange(State::kNone, std::memory_order_acq_rel) == State::kStopping;
  if (was_recalled) return Pulled::kRecalledWhileReading;
  return copied == bytes ? Pulled::kAll : Pulled::kRecalled;
}

}  // namespace onebit::local
