// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The sending half of an endpoint.
#include <cstring>

#include "plugins/transport_local/local_endpoint.h"

namespace onebit::local {

onebitResult_t Endpoint::Send(int peer, const void* header, size_t header_bytes,
                              const void* payload, size_t payload_bytes, Request** request) {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  if (header_bytes > ONEBIT_TRANSPORT_HEADER_BYTES || (header == nullptr && header_bytes != 0) ||
      (payload == nullptr && payload_bytes != 0)) {
    return onebitInvalidArgument;
  }
  Peer& to = peers_[static_cast<size_t>(peer)];
  if (HasDeparted(to)) {
    ReportDeparture(peer);
    return onebitRemoteError;
  }
  Slot& slot = to.inbox->slot(rank_, to.sent);
  if (!HasRoom(to, slot)) return onebitInProgress;

  Request* sending = &sent_;
  if (payload_bytes > context_->eager_bytes()) {
    sending = requests_.Take(RequestState::kOffered, peer);
    if (sending == nullptr) return onebitInProgress;
    sending->slot = &slot;
    to.offers[to.sent % kSlotsPerRing] = sending;
  }
  slot.Publish(header, header_bytes, payload, payload_bytes, context_->eager_bytes());
  ++to.sent;
  to.inbox->doorbell().Ring();

  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + header_bytes + payload_bytes,
                    std::memory_order_relaxed);
  messages_sent_.store(messages_sent_.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  *request = sending;
  return onebitSuccess;
}

// True if the next slot of `to` can be filled. Otherwise the receiver will ring when it frees one.
bool Endpoint::HasRoom(Peer& to, Slot& slot) {
  Request*& former = to.offers[to.sent % kSlotsPerRing];
  if (former != nullptr) ResolveOffer(former);  // frees the slot if the offer was refused
  if (slot.state() != SlotState::kFree) {
    // seq_cst: announce first, then check again; see Slot::Free.
    to.inbox->source_lacks_room(rank_).store(1, std::memory_order_seq_cst);
    if (slot.state_seq_cst() != SlotState::kFree) return false;
  }
  // The receiver may have taken the former offer since the check above. Its request must be settled
  // now, because the next message in the slot erases the answer.
  if (former != nullptr) ResolveOffer(former);
  return true;
}

// Checks if an offer is settled, and if so ends its request.
void Endpoint::ResolveOffer(Request* request) {
  Peer& to = peers_[static_cast<size_t>(request->peer)];
  Slot& slot = *request->slot;
  RequestState outcome = RequestState::kFailed;
  switch (slot.state()) {
    case SlotState::kFree:
      outcome = RequestState::kDone;
      break;
    case SlotState::kRefused:
      slot.ForgetRefusal();
      break;
    case SlotState::kOffered:
      // An aborted peer may still be about to copy, so the offer must be withdrawn successfully
      // first.
      if (!HasDeparted(to) || !slot.WithdrawOffer()) return;
      ReportDeparture(request->peer);
      break;
    case SlotState::kCopying:
    case SlotState::kWithdrawing:
    case SlotState::kWithdrawn:
    case SlotState::kEager:
      return;
  }
  for (Request*& offer : to.offers) {
    if (offer == request) offer = nullptr;
  }
  request->state = outcome;
  request->slot = nullptr;
}

// Takes the payload's buffer back from the receiver. A receiver that is copying stops after the
// current piece, and rings; it runs in this process, so that takes a bounded time.
void Endpoint::WithdrawOffer(Request* request) {
  constexpr uint64_t kLookAgainNs = 1'000'000;
  Peer& to = peers_[static_cast<size_t>(request->peer)];
  while (true) {
    const uint32_t count = inbox_->doorbell().count();
    if (request->slot->Withdraw()) break;
    inbox_->doorbell().Wait(count, kLookAgainNs, 0, context_->clock());
  }
  for (Request*& offer : to.offers) {
    if (offer == request) offer = nullptr;
  }
}

}  // namespace onebit::local
