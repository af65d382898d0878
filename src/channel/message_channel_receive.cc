// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The receiving half of a message channel.
#include <algorithm>
#include <cstring>

#include "channel/message_channel.h"

namespace onebit::channel {

onebitResult_t MessageChannel::Receive(int rank, void* header, Request** request) {
  return WithLock([&]() -> onebitResult_t {
    const onebitResult_t check = CheckPeer(rank);
    if (check != onebitSuccess) return check;
    Peer& from = peer(rank);
    if (from.posted != nullptr) return onebitInvalidUsage;
    Request* receiving = requests_->Take(RequestState::kPosted, rank);
    if (receiving == nullptr) return onebitInProgress;
    receiving->header = header;
    from.posted = receiving;
    MatchPosted(rank);
    *request = receiving;
    return onebitSuccess;
  });
}

// Gives the next message from a rank to the receive that waits for it, or fails the receive if no
// message can come any more.
void MessageChannel::MatchPosted(int source) {
  Peer& from = peer(source);
  Request* request = from.posted;
  if (request == nullptr) return;
  SkipWithdrawn(from);
  Slot& slot = from.slot(from.received);
  if (slot.state == SlotState::kArrived && slot.number == from.received) {
    if (slot.header_bytes != 0) std::memcpy(request->header, slot.header, slot.header_bytes);
    request->state = RequestState::kHeader;
    request->number = slot.number;
    request->payload_bytes = slot.payload_bytes;
    slot.state = SlotState::kTaken;
    slot.taker = request;
    ++from.received;
  } else if (from.is_lost() || (from.has_bye && from.received >= from.bye_number)) {
    request->state = RequestState::kFailed;
    ReportDeparture(source);
  } else {
    return;
  }
  from.posted = nullptr;
  ++events_;
}

void MessageChannel::SkipWithdrawn(Peer& from) {
  while (true) {
    Slot& slot = from.slot(from.received);
    if (slot.state != SlotState::kWithdrawn || slot.number != from.received) return;
    ++from.received;
    ReleaseSlot(from, slot);
  }
}

onebitResult_t MessageChannel::Probe(const Request& request, size_t* header_bytes,
                                     size_t* payload_bytes) {
  return WithLock([&] {
    if (request.state == RequestState::kNative) {
      *header_bytes = 0;
      return frames_.TestAllreduce(payload_bytes);
    }
    if (request.state != RequestState::kHeader) return onebitInvalidUsage;
    *header_bytes = peer(request.peer).slot(request.number).header_bytes;
    *payload_bytes = request.payload_bytes;
    return onebitSuccess;
  });
}

onebitResult_t MessageChannel::Accept(Request* request, void* payload, size_t payload_bytes) {
  return WithLock([&] {
    if (request->state != RequestState::kHeader) return onebitInvalidUsage;
    if (payload_bytes != request->payload_bytes || (payload == nullptr && payload_bytes != 0)) {
      return onebitInvalidArgument;
    }
    Peer& from = peer(request->peer);
    Slot& slot = from.slot(request->number);
    if (slot.moved_bytes != 0) {
      std::memcpy(payload, slot.memory, slot.moved_bytes);
    }
    if (slot.moved_bytes == payload_bytes) {
      EndReceive(request, RequestState::kDone);
    } else if (slot.state == SlotState::kTakenLost || from.is_gone()) {
      if (from.is_gone()) ReportDeparture(request->peer);
      EndReceive(request, RequestState::kFailed);
    } else if (IsPulled(from, payload_bytes)) {
      const bool is_here = frames_.Pull(request->peer, request->number,
                                        {static_cast<std::byte*>(payload), payload_bytes});
      EndReceive(request, is_here ? RequestState::kDone : RequestState::kFailed);
    } else {
      request->state = RequestState::kReceiving;
      request->target = static_cast<std::byte*>(payload);
      request->moved_bytes = slot.moved_bytes;
      if (payload_bytes > early_bytes(from))
        SendControl(request->peer, WireType::kAccept, request->number);
    }
    return onebitSuccess;
  });
}

// Ends a receive whose header has arrived: from now on nothing refers to the user's memory.
void MessageChannel::EndReceive(Request* request, RequestState outcome) {
  Peer& from = peer(request->peer);
  StopPlacing(from, request->number);
  if (request->payload_bytes > eager_bytes_) {
    from.unannounced_bytes += request->payload_bytes;
    from.awaited = std::max(from.awaited, request->number + 1);  // Receives may end in any order.
  }
  ReleaseSlot(from, from.slot(request->number));
  request->state = outcome;
  ++events_;
}

// Slots are released in the order of their messages, so that a single number informs the sender.
void MessageChannel::ReleaseSlot(Peer& from, Slot& slot) {
  slot.state = SlotState::kFree;
  slot.taker = nullptr;
  if (slot.memory != nullptr) from.GivePartBack(slot.memory);
  slot.memory = nullptr;
  while (from.released < from.received && from.slot(from.released).state == SlotState::kFree) {
    ++from.released;
  }
  AnnounceReleased(RankOf(from));
}

}  // namespace onebit::channel
