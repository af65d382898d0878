// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What peers send. Called inside progress; whatever does not fit our books is dropped.
#include <cstring>

#include "plugins/common/endpoint.h"

namespace onebit::plugin {

void Endpoint::OnFrame(const void* header, size_t header_bytes, const void* payload,
                       size_t payload_bytes) {
  if (is_mute_) return;
  const auto* bytes = static_cast<const std::byte*>(header);
  const char* problem = "it is too short";
  WireHeader wire{};
  if (header_bytes >= sizeof wire) {
    std::memcpy(&wire, bytes, sizeof wire);
    problem = Arrive(wire, bytes + sizeof wire, header_bytes - sizeof wire,
                     static_cast<const std::byte*>(payload), payload_bytes);
  }
  if (problem == nullptr || has_warned_) return;
  has_warned_ = true;
  context_->Warn(
      "rank %d drops a message that says it is from rank %u: %s; further "
      "ones are dropped without a word",
      rank_, wire.source, problem);
}

const char* Endpoint::Arrive(const WireHeader& wire, const std::byte* header, size_t header_bytes,
                             const std::byte* payload, size_t payload_bytes) {
  if (wire.magic != kWireMagic) return "it is not of this transport, or of another version";
  if (wire.comm_id != comm_id_) return "it is of another communicator";
  if (wire.source >= peers_.size()) return "there is no such rank";
  if (wire.header_bytes != header_bytes || header_bytes > ONEBIT_TRANSPORT_HEADER_BYTES) {
    return "its header has a wrong length";
  }
  Peer& from = peer(static_cast<int>(wire.source));
  if (wire.released > from.sent) return "it releases what was not sent";
  const char* problem = ArriveByType(from, wire, header, payload, payload_bytes);
  if (wire.released > from.released_by_it) ArriveRelease(from, wire.released);
  return problem;
}

const char* Endpoint::ArriveByType(Peer& from, const WireHeader& wire, const std::byte* header,
                                   const std::byte* payload, size_t payload_bytes) {
  switch (wire.type) {
    case WireType::kHello:
      from.has_hello = true;
      return nullptr;
    case WireType::kMessage:
      return ArriveMessage(static_cast<int>(wire.source), wire, header, payload, payload_bytes);
    case WireType::kData:
      return ArriveData(from, wire, payload, payload_bytes);
    case WireType::kAccept:
    case WireType::kDrop:
      ArriveAnswer(from, wire);
      return nullptr;
    case WireType::kWithdraw:
      ArriveWithdrawal(from, wire);
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

const char* Endpoint::ArriveMessage(int source, const WireHeader& wire, const std::byte* header,
                                    const std::byte* payload, size_t payload_bytes) {
  Peer& from = peer(source);
  const size_t eager_bytes = eager_bytes_;
  if (wire.number < from.received || wire.number >= from.released + kWindow) {
    return "its number is out of order";
  }
  // An eager payload is here, an early one may have begun, a larger one was not asked for.
  const size_t least = wire.value <= eager_bytes ? wire.value : 0;
  const size_t most = wire.value <= place_bytes_ ? wire.value : 0;
  if (payload_bytes < least || payload_bytes > most) {
    return "its payload has a wrong length";
  }
  Place& place = from.place(wire.number);
  switch (place.state) {
    case PlaceState::kFree:
      place.state = PlaceState::kArrived;
      break;
    case PlaceState::kWithdrawnEarly:
      place.state = PlaceState::kWithdrawn;
      break;
    case PlaceState::kArrived:
    case PlaceState::kTaken:
    case PlaceState::kTakenLost:
    case PlaceState::kWithdrawn:
      return "it comes twice";
  }
  place.number = wire.number;
  place.header_bytes = wire.header_bytes;
  place.payload_bytes = wire.value;
  place.moved_bytes = payload_bytes;
  if (wire.header_bytes != 0) std::memcpy(place.header, header, wire.header_bytes);
  if (payload_bytes != 0) {
    std::memcpy(PlaceMemory(from, wire.number), payload, payload_bytes);
  }
  if (wire.number >= from.seen) from.seen = wire.number + 1;
  MatchPosted(source);
  TellReleased(source);
  return nullptr;
}

const char* Endpoint::ArriveData(Peer& from, const WireHeader& wire, const std::byte* payload,
                                 size_t payload_bytes) {
  Place& place = from.place(wire.number);
  if (place.number != wire.number ||
      (place.state != PlaceState::kTaken && place.state != PlaceState::kArrived)) {
    return nullptr;  // of a receive that was cancelled meanwhile
  }
  if (payload_bytes > place.payload_bytes || wire.value > place.payload_bytes - payload_bytes) {
    return "its piece lies outside the payload";
  }
  Request* request = place.taker;
  const bool is_accepted =
      place.state == PlaceState::kTaken && request->state == RequestState::kReceiving;
  if (!is_accepted && place.payload_bytes > early_bytes_) return "it was not asked for";
  uint64_t& moved_bytes = is_accepted ? request->moved_bytes : place.moved_bytes;
  // Also where the memory is the caller's: a piece that comes twice must not count for another one.
  if (wire.value != moved_bytes) return "its piece is out of order";
  std::byte* const target = is_accepted ? request->target : PlaceMemory(from, wire.number);
  if (payload_bytes != 0) std::memcpy(target + wire.value, payload, payload_bytes);
  moved_bytes += payload_bytes;
  if (is_accepted && moved_bytes == place.payload_bytes) EndReceive(request, RequestState::kDone);
  return nullptr;
}

// Releases come in the order of the messages. What the peer has dropped it said before, unless it
// ends: then nobody cares.
void Endpoint::ArriveRelease(Peer& from, uint64_t released) {
  for (uint64_t number = from.released_by_it; number < released; ++number) {
    Request* offer = from.offers[number % kWindow];
    if (offer != nullptr && offer->number == number && offer->state == RequestState::kLeaving) {
      EndOffer(offer, RequestState::kDone);
    }
  }
  from.released_by_it = released;
  if (lacks_room_) ++news_;
  lacks_room_ = false;
}

void Endpoint::ArriveAnswer(Peer& from, const WireHeader& wire) {
  Request* offer = from.offers[wire.number % kWindow];
  if (offer == nullptr || offer->number != wire.number) return;  // withdrawn meanwhile
  if (wire.type == WireType::kDrop) {
    EndOffer(offer, RequestState::kFailed);
  } else if (offer->state == RequestState::kOffered) {
    StartStreaming(offer);
  }
}

void Endpoint::ArriveWithdrawal(Peer& from, const WireHeader& wire) {
  Place& place = from.place(wire.number);
  const bool is_here = place.state != PlaceState::kFree && place.number == wire.number;
  if (!is_here) {
    if (place.state == PlaceState::kFree && wire.number >= from.received &&
        wire.number < from.released + kWindow) {
      place.state = PlaceState::kWithdrawnEarly;
      place.number = wire.number;
    }
    return;  // else it was dropped already
  }
  if (place.state == PlaceState::kArrived) {
    place.state = PlaceState::kWithdrawn;
    SkipWithdrawn(from);
  } else if (place.state == PlaceState::kTaken) {
    if (place.taker->state == RequestState::kReceiving) {
      EndReceive(place.taker, RequestState::kFailed);
    } else {
      place.state = PlaceState::kTakenLost;  // told after accept
    }
  }
}

}  // namespace onebit::plugin
