// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Handles arriving frames. Runs inside progress; a frame that does not fit our records is dropped.
#include <cstring>

#include "channel/message_channel.h"
#include "kernels/copy.h"

namespace onebit::channel {

// Pieces of accepted payloads go into the caller's memory without another copy. All checks come
// again when the frame is complete.
std::byte* MessageChannel::Place(const void* header, size_t header_bytes, size_t payload_bytes) {
  WireHeader wire{};
  if (is_discarding_ || header_bytes != sizeof wire) return nullptr;
  std::memcpy(&wire, header, sizeof wire);
  if (wire.magic != kWireMagic || wire.comm_id != comm_id_ || wire.source >= peers_.size() ||
      wire.type != WireType::kData) {
    return nullptr;
  }
  Peer& from = peer(static_cast<int>(wire.source));
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

void MessageChannel::StopPlacing(Peer& from, uint64_t number) {
  if (number == Peer::kNothing || from.placed != number) return;
  from.placed = Peer::kNothing;
  frames_.StopPlacing(RankOf(from));
}

void MessageChannel::OnFrame(const void* header, size_t header_bytes, const void* payload,
                             size_t payload_bytes) {
  if (is_discarding_) return;
  const auto* bytes = static_cast<const std::byte*>(header);
  const char* problem = "it is too short";
  WireHeader wire{};
  if (header_bytes >= sizeof wire) {
    std::memcpy(&wire, bytes, sizeof wire);
    problem = Handle(wire, bytes + sizeof wire, header_bytes - sizeof wire,
                     static_cast<const std::byte*>(payload), payload_bytes);
  }
  if (problem == nullptr || has_warned_) return;
  has_warned_ = true;
  context_->Warn(
      "rank {} drops a message that says it is from rank {}: {}; further ones are dropped without "
      "a word",
      rank_, wire.source, problem);
}

const char* MessageChannel::Handle(const WireHeader& wire, const std::byte* header,
                                   size_t header_bytes, const std::byte* payload,
                                   size_t payload_bytes) {
  if (wire.magic != kWireMagic) return "it is not of this transport, or of another version";
  if (wire.comm_id != comm_id_) return "it is of another communicator";
  if (wire.source >= peers_.size()) return "there is no such rank";
  if (wire.header_bytes != header_bytes || header_bytes > kMessageHeaderBytes) {
    return "its header has a wrong length";
  }
  Peer& from = peer(static_cast<int>(wire.source));
  if (wire.released > from.sent) return "it releases what was not sent";
  const char* problem = HandleByType(from, wire, header, payload, payload_bytes);
  if (wire.released > from.released_by_it) HandleRelease(from, wire.released);
  return problem;
}

const char* MessageChannel::HandleByType(Peer& from, const WireHeader& wire,
                                         const std::byte* header, const std::byte* payload,
                                         size_t payload_bytes) {
  switch (wire.type) {
    case WireType::kHello:
      from.has_hello = true;
      return nullptr;
    case WireType::kMessage:
      return HandleMessage(static_cast<int>(wire.source), wire, header, payload, payload_bytes);
    case WireType::kData:
      return HandleData(from, wire, payload, payload_bytes);
    case WireType::kAccept:
    case WireType::kDrop:
      HandleAnswer(from, wire);
      return nullptr;
    case WireType::kWithdraw:
      HandleWithdrawal(from, wire);
      return nullptr;
    case WireType::kRelease:
      return nullptr;
    case WireType::kBye:
      from.has_bye = true;
      from.was_aborted = wire.value != 0;
      from.bye_number = wire.number;
      has_losses_ = true;
      return nullptr;
  }
  return "its type is unknown";
}

const char* MessageChannel::HandleMessage(int source, const WireHeader& wire,
                                          const std::byte* header, const std::byte* payload,
                                          size_t payload_bytes) {
  Peer& from = peer(source);
  const size_t eager_bytes = eager_bytes_;
  if (wire.number < from.received || wire.number >= from.released + kWindow) {
    return "its number is out of order";
  }
  // An eager payload comes complete, an early one may have begun, and a larger one must not come
  // before it is accepted.
  const size_t least = wire.value <= eager_bytes ? wire.value : 0;
  const size_t most = wire.value <= slot_bytes_ ? wire.value : 0;
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
  AnnounceReleased(source);
  return nullptr;
}

const char* MessageChannel::HandleData(Peer& from, const WireHeader& wire, const std::byte* payload,
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
  if (!is_accepted && slot.payload_bytes > early_bytes(from)) return "it was not asked for";
  uint64_t& moved_bytes = is_accepted ? request->moved_bytes : slot.moved_bytes;
  // This check also covers memory of the caller: a piece that comes twice must not count as another
  // one.
  if (wire.value != moved_bytes) return "its piece is out of order";
  std::byte* const target = (is_accepted ? request->target : slot.memory) + wire.value;
  if (payload == target) {
    // It was placed.
  } else if (is_accepted) {
    kernels::cpu::CopyPastCaches(target, payload, payload_bytes);
  } else if (payload_bytes != 0) {
    std::memcpy(target, payload, payload_bytes);
  }
  moved_bytes += payload_bytes;
  if (is_accepted && moved_bytes == slot.payload_bytes) EndReceive(request, RequestState::kDone);
  return nullptr;
}

// Releases come in the order of the messages. The peer announced its drops before, unless it ends,
// and then nobody needs them.
void MessageChannel::HandleRelease(Peer& from, uint64_t released) {
  for (uint64_t number = from.released_by_it; number < released; ++number) {
    Request* offer = from.offers[number % kWindow];
    if (offer != nullptr && offer->number == number && offer->state == RequestState::kLeaving) {
      EndOffer(offer, RequestState::kDone);
    }
  }
  from.released_by_it = released;
  if (lacks_room_) ++events_;
  lacks_room_ = false;
}

void MessageChannel::HandleAnswer(Peer& from, const WireHeader& wire) {
  Request* offer = from.offers[wire.number % kWindow];
  if (offer == nullptr || offer->number != wire.number) return;  // withdrawn meanwhile
  if (wire.type == WireType::kDrop) {
    EndOffer(offer, RequestState::kFailed);
  } else if (offer->state == RequestState::kOffered) {
    StartStreaming(offer);
  }
}

void MessageChannel::HandleWithdrawal(Peer& from, const WireHeader& wire) {
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
      EndReceive(slot.taker, RequestState::kFailed);
    } else {
      slot.state = SlotState::kTakenLost;  // reported after accept
    }
  }
}

}  // namespace onebit::channel
