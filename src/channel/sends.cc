// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "channel/sends.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace onebit::channel {
namespace {

// Pieces of one payload to send before other payloads, and arrivals, are served.
constexpr int kPiecesPerTurn = 8;

}  // namespace

onebitResult_t Sends::Start(Peer& to, std::span<const std::byte> header,
                            std::span<const std::byte> payload, Request** request) {
  const bool is_eager = payload.size() <= state_.eager_bytes;
  const int rank = state_.RankOf(to);
  Request* sending =
      state_.requests->Take(is_eager ? RequestState::kStaged : RequestState::kOffered, rank);
  if (sending == nullptr) return onebitInProgress;
  sending->number = to.sent;
  sending->payload = payload.data();
  sending->payload_bytes = payload.size();
  const uint64_t taken = to.link->taken;
  WireHeader wire = controls_.Wire(to, WireType::kMessage, to.sent, payload.size());
  wire.header_bytes = static_cast<uint16_t>(header.size());
  std::byte bytes[kMostHeaderBytes];
  std::memcpy(bytes, &wire, sizeof wire);
  if (!header.empty()) std::memcpy(bytes + sizeof wire, header.data(), header.size());
  const std::span<const std::byte> head(bytes, sizeof wire + header.size());
  onebitResult_t result = onebitInProgress;
  const bool is_early = !is_eager && payload.size() <= state_.early_bytes(to);
  if (is_early && to.stream.is_empty()) {
    sending->moved_bytes = std::min(to.link->pieceBytes, payload.size());
    result = state_.frames.Send(rank, onebitFrameLong, head, payload.first(sending->moved_bytes));
    if (result != onebitSuccess) sending->moved_bytes = 0;
  }
  const bool is_pulled = state_.IsPulled(to, payload.size());
  if (is_pulled && !state_.frames.Offer(rank, to.sent, payload)) {
    state_.requests->Return(sending);
    return onebitInternalError;
  }
  if (result == onebitInProgress) {
    result = state_.frames.Send(rank, onebitFrameShort, head,
                                payload.first(is_eager ? payload.size() : 0));
  }
  if (result != onebitSuccess) {
    if (is_pulled) state_.frames.Recall(rank, to.sent);
    state_.requests->Return(sending);
    return result;
  }
  if (!is_eager) {
    to.offers[to.sent % kWindow] = sending;
    to.pending_bytes += payload.size();
  }
  ++to.sent;
  to.MarkAnnounced(wire.released);
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + header.size() + payload.size(),
                    std::memory_order_relaxed);
  messages_sent_.store(messages_sent_.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  if (is_eager && to.link->taken == taken) {
    state_.requests->Return(sending);
    sending = &sent_;
  } else if (is_eager) {
    sending->frame = to.link->taken;
  } else if (is_pulled || (is_early && sending->moved_bytes == payload.size())) {
    sending->state = RequestState::kLeaving;
  } else if (is_early) {
    StartStreaming(sending);
    PumpStream(to);
  }
  *request = sending;
  return onebitSuccess;
}

// Sends pieces of the payloads in flight, to all peers in turn. True if any was sent.
bool Sends::Pump() {
  bool has_sent = false;
  // Backwards, because StopStreaming moves the last entry into the slot of the one that ends.
  for (size_t i = streaming_.size(); i-- > 0;) has_sent |= PumpStream(state_.peer(streaming_[i]));
  return has_sent;
}

bool Sends::PumpStream(Peer& to) {
  if (to.is_gone()) return false;  // HandleDepartures ends it
  // A waiting drop must be sent before the release that follows it.
  if (!to.controls.is_empty()) return false;
  const size_t piece_bytes = to.link->pieceBytes;
  bool has_sent = false;
  for (int i = 0; i < kPiecesPerTurn && !to.stream.is_empty(); ++i) {
    Request* request = to.stream.first();
    const size_t bytes = std::min(piece_bytes, request->payload_bytes - request->moved_bytes);
    const bool is_last = bytes == request->payload_bytes - request->moved_bytes;
    const WireHeader wire =
        controls_.Wire(to, WireType::kData, request->number, request->moved_bytes);
    // Set before the last piece is sent: for a message to this rank itself, the frame transport may
    // deliver inside the send, answer included.
    if (is_last) request->state = RequestState::kLeaving;
    const onebitResult_t result =
        state_.frames.Send(state_.RankOf(to), onebitFrameLong, std::as_bytes(std::span(&wire, 1)),
                           {request->payload + request->moved_bytes, bytes});
    if (result != onebitSuccess) {
      if (is_last) request->state = RequestState::kStreaming;
      return has_sent;
    }
    to.MarkAnnounced(wire.released);
    has_sent = true;
    if (is_last) {
      StopStreaming(request);
    } else {
      request->moved_bytes += bytes;
    }
  }
  return has_sent;
}

void Sends::StartStreaming(Request* request) {
  Peer& to = state_.peer(request->peer);
  if (to.stream.is_empty()) streaming_.push_back(request->peer);
  to.stream.Append(request);
  request->state = RequestState::kStreaming;
}

void Sends::StopStreaming(Request* request) {
  Peer& to = state_.peer(request->peer);
  to.stream.Remove(request);
  if (!to.stream.is_empty()) return;
  *std::find(streaming_.begin(), streaming_.end(), request->peer) = streaming_.back();
  streaming_.pop_back();
}

// Ends a send that was offered: from now on nothing refers to the user's payload.
void Sends::End(Request* request, RequestState outcome) {
  if (request->state == RequestState::kStreaming) StopStreaming(request);
  if (state_.IsPulled(state_.peer(request->peer), request->payload_bytes)) {
    state_.frames.Recall(request->peer, request->number);
  }
  state_.peer(request->peer).pending_bytes -= request->payload_bytes;
  state_.peer(request->peer).offers[request->number % kWindow] = nullptr;
  request->state = outcome;
  ++state_.events;
}

// Releases come in the order of the messages. The peer announced its drops before, unless it ends,
// and then nobody needs them.
void Sends::HandleRelease(Peer& from, uint64_t released) {
  for (uint64_t number = from.released_by_it; number < released; ++number) {
    Request* offer = from.offers[number % kWindow];
    if (offer != nullptr && offer->number == number && offer->state == RequestState::kLeaving) {
      End(offer, RequestState::kDone);
    }
  }
  from.released_by_it = released;
  if (state_.lacks_room) ++state_.events;
  state_.lacks_room = false;
}

void Sends::HandleAnswer(Peer& from, const WireHeader& wire) {
  Request* offer = from.offers[wire.number % kWindow];
  if (offer == nullptr || offer->number != wire.number) return;  // withdrawn meanwhile
  if (wire.type == WireType::kDrop) {
    End(offer, RequestState::kFailed);
  } else if (offer->state == RequestState::kOffered) {
    StartStreaming(offer);
  }
}

}  // namespace onebit::channel
