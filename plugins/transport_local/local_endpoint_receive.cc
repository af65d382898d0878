// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The receiving half of an endpoint.
#include <algorithm>
#include <cstring>

#include "plugins/transport_local/local_endpoint.h"

namespace onebit::local {

onebitResult_t Endpoint::Receive(int peer, void* header, Request** request) {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  Peer& from = peers_[static_cast<size_t>(peer)];
  if (from.posted != nullptr) return onebitInvalidUsage;
  Request* receiving = requests_.Take(RequestState::kPosted, peer);
  if (receiving == nullptr) return onebitInProgress;
  receiving->header = header;
  from.posted = receiving;
  if (!MatchPosted(receiving)) posted_.push_back(receiving);
  *request = receiving;
  return onebitSuccess;
}

// Takes the next header from the peer of a posted receive. True if the receive is no longer posted.
bool Endpoint::MatchPosted(Request* request) {
  Peer& from = peers_[static_cast<size_t>(request->peer)];
  while (true) {
    // Reads the state first and the slot second: after its end a rank publishes nothing, so an
    // empty slot stays empty.
    const bool has_departed = HasDeparted(from);
    // After one round of the ring, the slot may hold a message whose payload was not accepted yet.
    if ((from.held_slots >> (from.received % kSlotsPerRing) & 1u) != 0) return false;
    Slot& slot = inbox_->slot(request->peer, from.received);
    switch (slot.state()) {
      case SlotState::kEager:
      case SlotState::kOffered:
        from.held_slots |= 1u << (from.received % kSlotsPerRing);
        if (slot.header_bytes() != 0) {
          std::memcpy(request->header, slot.header(), slot.header_bytes());
        }
        request->slot = &slot;
        request->state = RequestState::kHeader;
        ++from.received;
        break;
      case SlotState::kWithdrawn:
        request->slot = &slot;
        ++from.received;
        ReleaseSlot(request);
        continue;
      case SlotState::kFree:
      case SlotState::kRefused:  // an earlier message that was refused; its sender frees the slot
      case SlotState::kCopying:
      case SlotState::kWithdrawing:
        if (!has_departed) return false;
        request->state = RequestState::kFailed;
        ReportDeparture(request->peer);
        break;
    }
    from.posted = nullptr;
    has_own_event_ = true;
    return true;
  }
}

onebitResult_t Endpoint::Probe(const Request& request, size_t* header_bytes,
                               size_t* payload_bytes) const {
  if (is_aborted()) return onebitAborted;
  if (request.state != RequestState::kHeader) return onebitInvalidUsage;
  *header_bytes = request.slot->header_bytes();
  *payload_bytes = request.slot->payload_bytes();
  return onebitSuccess;
}

onebitResult_t Endpoint::Accept(Request* request, void* payload, size_t payload_bytes) {
  if (is_aborted()) return onebitAborted;
  if (request->state != RequestState::kHeader) return onebitInvalidUsage;
  Slot& slot = *request->slot;
  if (payload_bytes != slot.payload_bytes() || (payload == nullptr && payload_bytes != 0)) {
    return onebitInvalidArgument;
  }
  has_own_event_ = true;
  if (payload_bytes > context_->eager_bytes()) {
    const bool is_complete = CopyOffered(request, static_cast<std::byte*>(payload));
    request->state = is_complete ? RequestState::kDone : RequestState::kFailed;
    return is_aborted() ? onebitAborted : onebitSuccess;
  }
  if (payload_bytes != 0) std::memcpy(payload, slot.eager_payload(), payload_bytes);
  ReleaseSlot(request);
  request->state = RequestState::kDone;
  return onebitSuccess;
}

// Copies an offered payload from the sender's buffer, piece by piece, so that neither the sender's
// cancel nor an abort of this rank waits long. False if the payload did not arrive in full.
bool Endpoint::CopyOffered(Request* request, std::byte* payload) {
  Slot& slot = *request->slot;
  if (!slot.StartCopying()) {
    ReleaseSlot(request);  // the offer was withdrawn
    return false;
  }
  const auto* source = static_cast<const std::byte*>(slot.offered_payload());
  const size_t bytes = slot.payload_bytes();
  size_t copied = 0;
  while (copied < bytes && !is_aborted() && !slot.is_withdrawing()) {
    const size_t piece = std::min(kPieceBytes, bytes - copied);
    std::memcpy(payload + copied, source + copied, piece);
    copied += piece;
  }
  if (copied < bytes) {
    DropReceive(request);
    return false;
  }
  ReleaseSlot(request);
  return true;
}

// Gives the slot of a message back to its sender, and rings if the sender waits for that.
void Endpoint::ReleaseSlot(Request* request) {
  Peer& from = peers_[static_cast<size_t>(request->peer)];
  Slot& slot = *request->slot;
  const bool is_offer = slot.payload_bytes() > context_->eager_bytes();
  for (uint64_t i = 0; i < kSlotsPerRing; ++i) {
    if (&inbox_->slot(request->peer, i) == &slot) from.held_slots &= ~(1u << i);
  }
  request->slot = nullptr;
  slot.Free();
  // seq_cst: free first, then check; see Slot::Free.
  auto lacks_room = inbox_->source_lacks_room(request->peer);
  const bool is_awaited = lacks_room.load(std::memory_order_seq_cst) != 0;
  // relaxed: a sender that announces again meanwhile is rung below, after this store, tries again
  // and announces again.
  if (is_awaited) lacks_room.store(0, std::memory_order_relaxed);
  if (is_offer || is_awaited) from.inbox->doorbell().Ring();
}

// Ends a receive that is posted, or whose payload has not arrived in full.
void Endpoint::DropReceive(Request* request) {
  Peer& from = peers_[static_cast<size_t>(request->peer)];
  if (request->state == RequestState::kPosted) {
    from.posted = nullptr;
    posted_.erase(std::find(posted_.begin(), posted_.end(), request));
    return;
  }
  Slot& slot = *request->slot;
  if (slot.payload_bytes() <= context_->eager_bytes()) {
    ReleaseSlot(request);
    return;
  }
  for (uint64_t i = 0; i < kSlotsPerRing; ++i) {
    if (&inbox_->slot(request->peer, i) == &slot) from.held_slots &= ~(1u << i);
  }
  request->slot = nullptr;
  slot.Refuse();
  from.inbox->doorbell().Ring();
}

}  // namespace onebit::local
