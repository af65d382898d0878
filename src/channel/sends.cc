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

onebitResult_t Sends::Send(int rank, const void* header, size_t header_bytes, const void* payload,
                           size_t payload_bytes, Request** request) {
  if (header_bytes > kMessageHeaderBytes || (header == nullptr && header_bytes != 0) ||
      (payload == nullptr && payload_bytes != 0)) {
    return onebitInvalidArgument;
  }
  Peer& to = state_.peer(rank);
  if (!to.controls.is_empty()) controls_.Flush(rank);
  onebitResult_t result = onebitInProgress;
  if (!to.is_gone() && to.controls.is_empty() && to.sent < to.released_by_it + kWindow &&
      to.offers[to.sent % kWindow] == nullptr &&
      (to.link->isPaced == 0 || to.pending_bytes < kMostPendingBytes)) {
    WireHeader wire = controls_.Wire(to, WireType::kMessage, to.sent, payload_bytes);
    wire.header_bytes = static_cast<uint16_t>(header_bytes);
    result = Start(to, wire, header, payload, payload_bytes, request);
  }
  if (result != onebitSuccess && to.is_gone()) {
    state_.ReportDeparture(rank);
    return to.has_bye ? onebitRemoteError : onebitPeerLost;
  }
  if (result == onebitInProgress) state_.lacks_room = true;
  // A frame that the frame transport could not send at once may need nothing but progress, and
  // the caller may not come back soon. (Over shared memory, UCX attaches to a segment of the
  // receiver only when it makes progress, and holds the first message until then.)
  if (to.in_flight() != 0) state_.frames.Progress();
  return result;
}

onebitResult_t Sends::Start(Peer& to, const WireHeader& wire, const void* header,
                            const void* payload, size_t payload_bytes, Request** request) {
  const bool is_eager = payload_bytes <= state_.eager_bytes;
  const auto* bytes = static_cast<const std::byte*>(payload);
  Request* sending = state_.requests->Take(
      is_eager ? RequestState::kStaged : RequestState::kOffered, state_.RankOf(to));
  if (sending == nullptr) return onebitInProgress;
  sending->number = to.sent;
  sending->payload = bytes;
  sending->payload_bytes = payload_bytes;
  const uint64_t taken = to.link->taken;
  std::byte head[kMostHeaderBytes];
  std::memcpy(head, &wire, sizeof wire);
  if (wire.header_bytes != 0) std::memcpy(head + sizeof wire, header, wire.header_bytes);
  const size_t head_bytes = sizeof wire + wire.header_bytes;
  Sent sent = Sent::kNoRoom;
  const bool is_early = !is_eager && payload_bytes <= state_.early_bytes(to);
  if (is_early && to.stream.is_empty()) {
    sending->moved_bytes = std::min(to.link->pieceBytes, payload_bytes);
    sent = state_.frames.Send(state_.RankOf(to), onebitFrameLong, {head, head_bytes},
                              {bytes, sending->moved_bytes});
    if (sent != Sent::kYes) sending->moved_bytes = 0;
  }
  const bool is_pulled = state_.IsPulled(to, payload_bytes);
  if (is_pulled && !state_.frames.Offer(state_.RankOf(to), to.sent, {bytes, payload_bytes})) {
    state_.requests->Return(sending);
    return onebitInternalError;
  }
  if (sent == Sent::kNoRoom) {
    sent = state_.frames.Send(state_.RankOf(to), onebitFrameShort, {head, head_bytes},
                              {bytes, is_eager ? payload_bytes : 0});
  }
  if (sent != Sent::kYes) {
    if (is_pulled) state_.frames.Recall(state_.RankOf(to), to.sent);
    state_.requests->Return(sending);
    return onebitInProgress;
  }
  if (!is_eager) {
    to.offers[to.sent % kWindow] = sending;
    to.pending_bytes += payload_bytes;
  }
  ++to.sent;
  to.MarkAnnounced(wire.released);
  bytes_sent_.store(bytes_sent_.load(std::memory_order_relaxed) + wire.header_bytes + payload_bytes,
                    std::memory_order_relaxed);
  messages_sent_.store(messages_sent_.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  if (is_eager && to.link->taken == taken) {
    state_.requests->Return(sending);
    sending = &sent_;
  } else if (is_eager) {
    sending->frame = to.link->taken;
  } else if (is_pulled || (is_early && sending->moved_bytes == payload_bytes)) {
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
    const Sent sent =
        state_.frames.Send(state_.RankOf(to), onebitFrameLong, std::as_bytes(std::span(&wire, 1)),
                           {request->payload + request->moved_bytes, bytes});
    if (sent != Sent::kYes) {
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
