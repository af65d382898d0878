// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/receives.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy.h"

namespace onebit::channel {

onebitResult_t Receives::Post(int rank, std::byte* header, Request** request) {
  Peer& from = state_.peer(rank);
  if (from.posted != nullptr) return onebitInvalidUsage;
  Request* receiving = state_.requests->Take(RequestState::kPosted, rank);
  if (receiving == nullptr) return onebitInProgress;
  receiving->header = header;
  from.posted = receiving;
  MatchPosted(rank);
  *request = receiving;
  return onebitSuccess;
}

// Gives the next message from a rank to the receive that waits for it, or fails the receive if no
// message can come any more.
void Receives::MatchPosted(int source) {
  Peer& from = state_.peer(source);
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
    state_.ReportDeparture(source);
  } else {
    return;
  }
  from.posted = nullptr;
  ++state_.events;
}

void Receives::SkipWithdrawn(Peer& from) {
  while (true) {
    Slot& slot = from.slot(from.received);
    if (slot.state != SlotState::kWithdrawn || slot.number != from.received) return;
    ++from.received;
    ReleaseSlot(from, slot);
  }
}

onebitResult_t Receives::Accept(Request* request, std::span<std::byte> payload) {
  if (request->state != RequestState::kHeader) return onebitInvalidUsage;
  if (payload.size() != request->payload_bytes) return onebitInvalidArgument;
  Peer& from = state_.peer(request->peer);
  Slot& slot = from.slot(request->number);
  if (slot.moved_bytes != 0) std::memcpy(payload.data(), slot.memory, slot.moved_bytes);
  if (slot.moved_bytes == payload.size()) {
    End(request, RequestState::kDone);
  } else if (slot.state == SlotState::kTakenLost || from.is_gone()) {
    if (from.is_gone()) state_.ReportDeparture(request->peer);
    End(request, RequestState::kFailed);
  } else if (state_.IsPulled(from, payload.size())) {
    const bool is_here = state_.frames.Pull(request->peer, request->number, payload);
    End(request, is_here ? RequestState::kDone : RequestState::kFailed);
  } else {
    request->state = RequestState::kReceiving;
    request->target = payload.data();
    request->moved_bytes = slot.moved_bytes;
    if (payload.size() > state_.early_bytes(from)) {
      controls_.Send(request->peer, WireType::kAccept, request->number);
    }
  }
  return onebitSuccess;
}

// Ends a receive whose header has arrived: from now on nothing refers to the user's memory.
void Receives::End(Request* request, RequestState outcome) {
  Peer& from = state_.peer(request->peer);
  StopPlacing(from, request->number);
  if (request->payload_bytes > state_.eager_bytes) {
    from.unannounced_bytes += request->payload_bytes;
    from.awaited = std::max(from.awaited, request->number + 1);  // Receives may end in any order.
  }
  ReleaseSlot(from, from.slot(request->number));
  request->state = outcome;
  ++state_.events;
}

// Slots are released in the order of their messages, so that a single number informs the sender.
void Receives::ReleaseSlot(Peer& from, Slot& slot) {
  slot.state = SlotState::kFree;
  slot.taker = nullptr;
  if (slot.memory != nullptr) from.GivePartBack(slot.memory);
  slot.memory = nullptr;
  while (from.released < from.received && from.slot(from.released).state == SlotState::kFree) {
    ++from.released;
  }
  controls_.AnnounceReleased(state_.RankOf(from));
}

// Pieces of accepted payloads go into the caller's memory without another copy. All checks come
// again when the frame is complete.
std::byte* Receives::Place(int peer, const void* header, size_t header_bytes,
                           size_t payload_bytes) {
  WireHeader wire{};
  if (state_.is_discarding || header_bytes != sizeof wire) return nullptr;
  std::memcpy(&wire, header, sizeof wire);
  if (wire.magic != kWireMagic || wire.comm_id != state_.comm_id ||
      wire.source >= state_.peers.size() || !IsFrom(peer, wire) || wire.type != WireType::kData) {
    return nullptr;
  }
  Peer& from = state_.peer(static_cast<int>(wire.source));
  const Slot& slot = from.slot(wire.number);
  if (slot.number != wire.number || slot.state != SlotState::kTaken) return nullptr;
  const Request& request = *slot.taker;
  if (request.state != RequestState::kReceiving || wire.value != request.moved_bytes ||
      payload_bytes > slot.payload_bytes - request.moved_bytes) {
    return nullptr;
  }
  from.placed = wire.number;
  return request.target + wire.value;
}

void Receives::StopPlacing(Peer& from, uint64_t number) {
  if (number == Peer::kNothing || from.placed != number) return;
  from.placed = Peer::kNothing;
  state_.frames.StopPlacing(state_.RankOf(from));
}

const char* Receives::HandleMessage(int source, const WireHeader& wire, const std::byte* header,
                                    const std::byte* payload, size_t payload_bytes) {
  Peer& from = state_.peer(source);
  const size_t eager_bytes = state_.eager_bytes;
  if (wire.number < from.received || wire.number >= from.released + kWindow) {
    return "its number is out of order";
  }
  // An eager payload comes complete, an early one may have begun, and a larger one must not come
  // before it is accepted.
  const size_t least = wire.value <= eager_bytes ? wire.value : 0;
  const size_t most = wire.value <= state_.slot_bytes() ? wire.value : 0;
  if (payload_bytes < least || payload_bytes > most) {
    return "its payload has a wrong length";
  }
  Slot& slot = from.slot(wire.number);
  switch (slot.state) {
    case SlotState::kFree:
      slot.state = SlotState::kArrived;
      break;
    case SlotState::kWithdrawnEarly:
      slot.state = SlotState::kWithdrawn;
      break;
    case SlotState::kArrived:
    case SlotState::kTaken:
    case SlotState::kTakenLost:
    case SlotState::kWithdrawn:
      return "it comes twice";
  }
  slot.number = wire.number;
  slot.header_bytes = wire.header_bytes;
  slot.payload_bytes = wire.value;
  slot.moved_bytes = payload_bytes;
  if (wire.header_bytes != 0) std::memcpy(slot.header, header, wire.header_bytes);
  slot.memory = from.TakePart();
  if (payload_bytes != 0) std::memcpy(slot.memory, payload, payload_bytes);
  if (wire.number >= from.seen) from.seen = wire.number + 1;
  MatchPosted(source);
  controls_.AnnounceReleased(source);
  return nullptr;
}

const char* Receives::HandleData(Peer& from, const WireHeader& wire, const std::byte* payload,
                                 size_t payload_bytes) {
  Slot& slot = from.slot(wire.number);
  if (from.placed == wire.number) from.placed = Peer::kNothing;
  if (slot.number != wire.number ||
      (slot.state != SlotState::kTaken && slot.state != SlotState::kArrived)) {
    return nullptr;  // its receive was cancelled meanwhile
  }
  if (payload_bytes > slot.payload_bytes || wire.value > slot.payload_bytes - payload_bytes) {
    return "its piece lies outside the payload";
  }
  Request* request = slot.taker;
  const bool is_accepted =
      slot.state == SlotState::kTaken && request->state == RequestState::kReceiving;
  if (!is_accepted && slot.payload_bytes > state_.early_bytes(from)) return "it was not asked for";
  uint64_t& moved_bytes = is_accepted ? request->moved_bytes : slot.moved_bytes;
  // This check also covers memory of the caller: a piece that comes twice must not count as another
  // one.
  if (wire.value != moved_bytes) return "its piece is out of order";
  std::byte* const target = (is_accepted ? request->target : slot.memory) + wire.value;
  const bool is_placed = payload == target;
  if (is_accepted && !is_placed) {
    kernels::cpu::CopyPastCaches(target, payload, payload_bytes);
  } else if (payload_bytes != 0 && !is_placed) {
    std::memcpy(target, payload, payload_bytes);
  }
  moved_bytes += payload_bytes;
  if (is_accepted && moved_bytes == slot.payload_bytes) End(request, RequestState::kDone);
  return nullptr;
}

void Receives::HandleWithdrawal(Peer& from, const WireHeader& wire) {
  Slot& slot = from.slot(wire.number);
  const bool is_here = slot.state != SlotState::kFree && slot.number == wire.number;
  if (!is_here) {
    if (slot.state == SlotState::kFree && wire.number >= from.received &&
        wire.number < from.released + kWindow) {
      slot.state = SlotState::kWithdrawnEarly;
      slot.number = wire.number;
    }
    return;  // else it was dropped already
  }
  if (slot.state == SlotState::kArrived) {
    slot.state = SlotState::kWithdrawn;
    SkipWithdrawn(from);
  } else if (slot.state == SlotState::kTaken) {
    if (slot.taker->state == RequestState::kReceiving) {
      End(slot.taker, RequestState::kFailed);
    } else {
      slot.state = SlotState::kTakenLost;  // reported after accept
    }
  }
}

}  // namespace onebit::channel
