// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The receiving half of an endpoint.
#include <algorithm>
#include <cstring>

#include "plugins/common/endpoint.h"

namespace onebit::plugin {

onebitResult_t Endpoint::Receive(int rank, void* header, Request** request) {
  return WithTurn([&]() -> onebitResult_t {
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

// Gives the next message of a rank to the receive that waits for it, or fails the receive if none
// can come any more.
void Endpoint::MatchPosted(int source) {
  Peer& from = peer(source);
  Request* request = from.posted;
  if (request == nullptr) return;
  SkipWithdrawn(from);
  Place& place = from.place(from.received);
  if (place.state == PlaceState::kArrived && place.number == from.received) {
    if (place.header_bytes != 0) std::memcpy(request->header, place.header, place.header_bytes);
    request->state = RequestState::kHeader;
    request->number = place.number;
    request->payload_bytes = place.payload_bytes;
    place.state = PlaceState::kTaken;
    place.taker = request;
    ++from.received;
  } else if (from.link->is_lost() || (from.has_bye && from.received >= from.bye_number)) {
    request->state = RequestState::kFailed;
    ReportDeparture(source);
  } else {
    return;
  }
  from.posted = nullptr;
  ++news_;
}

void Endpoint::SkipWithdrawn(Peer& from) {
  while (true) {
    Place& place = from.place(from.received);
    if (place.state != PlaceState::kWithdrawn || place.number != from.received) return;
    ++from.received;
    ReleasePlace(from, place);
  }
}

onebitResult_t Endpoint::Probe(const Request& request, size_t* header_bytes,
                               size_t* payload_bytes) {
  return WithTurn([&] {
    if (request.state != RequestState::kHeader) return onebitInvalidUsage;
    *header_bytes = peer(request.peer).place(request.number).header_bytes;
    *payload_bytes = request.payload_bytes;
    return onebitSuccess;
  });
}

onebitResult_t Endpoint::Accept(Request* request, void* payload, size_t payload_bytes) {
  return WithTurn([&] {
    if (request->state != RequestState::kHeader) return onebitInvalidUsage;
    if (payload_bytes != request->payload_bytes || (payload == nullptr && payload_bytes != 0)) {
      return onebitInvalidArgument;
    }
    Peer& from = peer(request->peer);
    Place& place = from.place(request->number);
    if (place.moved_bytes != 0) {
      std::memcpy(payload, PlaceMemory(from, request->number), place.moved_bytes);
    }
    if (place.moved_bytes == payload_bytes) {
      EndReceive(request, RequestState::kDone);
    } else if (place.state == PlaceState::kTakenLost || from.is_gone()) {
      if (from.is_gone()) ReportDeparture(request->peer);
      EndReceive(request, RequestState::kFailed);
    } else {
      request->state = RequestState::kReceiving;
      request->target = static_cast<std::byte*>(payload);
      request->moved_bytes = place.moved_bytes;
      if (payload_bytes > early_bytes_) Tell(request->peer, WireType::kAccept, request->number);
    }
    return onebitSuccess;
  });
}

// Ends a receive whose header had come: from now on nothing refers to the user's memory.
void Endpoint::EndReceive(Request* request, RequestState outcome) {
  Peer& from = peer(request->peer);
  if (request->payload_bytes > eager_bytes_) {
    from.untold_bytes += request->payload_bytes;
    from.awaited = std::max(from.awaited, request->number + 1);  // they may end in any order
  }
  ReleasePlace(from, from.place(request->number));
  request->state = outcome;
  ++news_;
}

// Places are given back in the order of their messages, so that one number tells the sender all.
void Endpoint::ReleasePlace(Peer& from, Place& place) {
  place.state = PlaceState::kFree;
  place.taker = nullptr;
  while (from.released < from.received && from.place(from.released).state == PlaceState::kFree) {
    ++from.released;
  }
  TellReleased(RankOf(from));
}

}  // namespace onebit::plugin
