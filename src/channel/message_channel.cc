// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Requests, arrivals, progress and waiting.
#include "channel/message_channel.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace onebit::channel {
namespace {

constexpr uint64_t kLongestWaitMs = 86'400'000;  // a day; a wait may end early
constexpr int kRoundsOfProgress = 16;

}  // namespace

onebitResult_t MessageChannel::CheckPeer(int peer) const {
  if (!is_connected_) return onebitInvalidUsage;
  return peer >= 0 && peer < state_.nranks ? onebitSuccess : onebitInvalidArgument;
}

onebitResult_t MessageChannel::Send(int rank, std::span<const std::byte> header,
                                    std::span<const std::byte> payload, Request** request) {
  return WithLock([&] {
    const onebitResult_t check = CheckPeer(rank);
    return check != onebitSuccess ? check : sends_.Send(rank, header, payload, request);
  });
}

onebitResult_t MessageChannel::Receive(int rank, std::span<std::byte> header, Request** request) {
  if (header.size() < kMessageHeaderBytes) return onebitInvalidArgument;
  return WithLock([&] {
    const onebitResult_t check = CheckPeer(rank);
    return check != onebitSuccess ? check : receives_.Post(rank, header.data(), request);
  });
}

onebitResult_t MessageChannel::Accept(Request* request, std::span<std::byte> payload) {
  return WithLock([&] { return receives_.Accept(request, payload); });
}

onebitResult_t MessageChannel::Test(Request* request, TransferState* state) {
  return WithLock([&] {
    switch (request->state) {
      case RequestState::kStaged: {
        Peer& to = state_.peer(request->peer);
        if (to.is_gone() || to.link->sent >= request->frame) break;
        Watch(to, request->frame);
        *state = TransferState::kPending;
        return onebitSuccess;
      }
      case RequestState::kOffered:
      case RequestState::kStreaming:
      case RequestState::kLeaving:
      case RequestState::kPosted:
      case RequestState::kReceiving:
        *state = TransferState::kPending;
        return onebitSuccess;
      case RequestState::kHeader:
        *state = TransferState::kHeader;
        return onebitSuccess;
      case RequestState::kDone: {
        Peer& from = state_.peer(request->peer);
        // A caller that expects nothing more from this rank may not come back soon.
        if (from.posted != nullptr) break;
        controls_.AnnounceReleasedNow(request->peer);
        if (from.HasAllAnswers()) break;
        Watch(from, from.answer_frame);
        *state = TransferState::kPending;
        return onebitSuccess;
      }
      case RequestState::kSent:
        *state = TransferState::kDone;
        return onebitSuccess;
      case RequestState::kFailed: {
        // The peer counts as lost, unless it announced its end, or is healthy and gave up only this
        // message.
        const Peer& other = state_.peer(request->peer);
        const bool is_lost = other.is_lost() && !other.has_bye;
        state_.requests->Return(request);
        return is_lost ? onebitPeerLost : onebitRemoteError;
      }
      case RequestState::kNative: {
        size_t bytes_done = 0;
        const onebitResult_t result = state_.frames.TestAllreduce(&bytes_done);
        *state =
            bytes_done == native_.payload_bytes ? TransferState::kDone : TransferState::kPending;
        return result;
      }
      case RequestState::kUnused:
        return onebitInvalidUsage;
    }
    state_.requests->Return(request);
    *state = TransferState::kDone;
    return onebitSuccess;
  });
}

onebitResult_t MessageChannel::Cancel(Request* request) {
  if (request->state == RequestState::kUnused) return onebitInvalidUsage;
  if (request->state == RequestState::kSent) return onebitSuccess;
  lock_.Lock();
  if (request->state == RequestState::kNative) {
    state_.frames.CancelAllreduce();
    ReleaseLock();
    return onebitSuccess;
  }
  Peer& other = state_.peer(request->peer);
  switch (request->state) {
    case RequestState::kOffered:
    case RequestState::kStreaming:
    case RequestState::kLeaving:
      sends_.End(request, RequestState::kFailed);
      controls_.Send(request->peer, WireType::kWithdraw, request->number);
      break;
    case RequestState::kPosted:
      other.posted = nullptr;
      controls_.AnnounceReleasedNow(request->peer);
      break;
    case RequestState::kHeader:
    case RequestState::kReceiving:
      if (request->payload_bytes > state_.eager_bytes) {
        controls_.Send(request->peer, WireType::kDrop, request->number);
      }
      receives_.End(request, RequestState::kFailed);
      break;
    case RequestState::kStaged:
    case RequestState::kDone:
    case RequestState::kFailed:
    case RequestState::kUnused:
    case RequestState::kSent:
    case RequestState::kNative:
      break;
  }
  state_.requests->Return(request);
  ReleaseLock();
  return onebitSuccess;
}

onebitResult_t MessageChannel::DescribePeer(int peer, char* text, size_t capacity) const {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  if (state_.frames.DescribeTrouble(peer, text, capacity)) return onebitTimeout;
  std::snprintf(text, capacity, "%s", state_.peer(peer).link->route);
  return onebitSuccess;
}

onebitResult_t MessageChannel::AllReduce(const void* send, void* recv, size_t count,
                                         onebitDataType_t type, onebitRedOp_t op,
                                         Request** request) {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    const onebitResult_t result = state_.frames.StartAllreduce(send, recv, count, type, op);
    if (result != onebitSuccess) return result;
    native_.payload_bytes = count * sizeof(float);
    *request = &native_;
    return onebitSuccess;
  });
}

onebitResult_t MessageChannel::Probe(const Request& request, size_t* header_bytes,
                                     size_t* payload_bytes) {
  return WithLock([&] {
    if (request.state == RequestState::kNative) {
      *header_bytes = 0;
      return state_.frames.TestAllreduce(payload_bytes);
    }
    if (request.state != RequestState::kHeader) return onebitInvalidUsage;
    *header_bytes = state_.peer(request.peer).slot(request.number).header_bytes;
    *payload_bytes = request.payload_bytes;
    return onebitSuccess;
  });
}

void MessageChannel::OnFrame(int peer, const void* header, size_t header_bytes, const void* payload,
                             size_t payload_bytes) {
  if (state_.is_discarding) return;
  const auto* bytes = static_cast<const std::byte*>(header);
  const char* problem = "it is too short";
  WireHeader wire{};
  if (header_bytes >= sizeof wire) {
    std::memcpy(&wire, bytes, sizeof wire);
    problem = !IsFrom(peer, wire) ? "another rank has sent it"
                                  : Handle(wire, bytes + sizeof wire, header_bytes - sizeof wire,
                                           static_cast<const std::byte*>(payload), payload_bytes);
  }
  if (problem == nullptr || has_warned_) return;
  has_warned_ = true;
  state_.context.Warn(
      "rank {} drops a message that says it is from rank {}: {}; further ones are dropped without "
      "a warning",
      state_.rank, wire.source, problem);
}

const char* MessageChannel::Handle(const WireHeader& wire, const std::byte* header,
                                   size_t header_bytes, const std::byte* payload,
                                   size_t payload_bytes) {
  if (wire.magic != kWireMagic) return "it is from another transport, or from another version";
  if (wire.comm_id != state_.comm_id) return "it is from another communicator";
  if (wire.source >= state_.peers.size()) return "there is no such rank";
  if (wire.header_bytes != header_bytes || header_bytes > kMessageHeaderBytes) {
    return "its header has a wrong length";
  }
  Peer& from = state_.peer(static_cast<int>(wire.source));
  if (wire.released > from.sent) return "it releases what was not sent";
  const char* problem = HandleByType(from, wire, header, payload, payload_bytes);
  if (wire.released > from.released_by_it) sends_.HandleRelease(from, wire.released);
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
      return receives_.HandleMessage(static_cast<int>(wire.source), wire, header, payload,
                                     payload_bytes);
    case WireType::kData:
      return receives_.HandleData(from, wire, payload, payload_bytes);
    case WireType::kAccept:
    case WireType::kDrop:
      sends_.HandleAnswer(from, wire);
      return nullptr;
    case WireType::kWithdraw:
      receives_.HandleWithdrawal(from, wire);
      return nullptr;
    case WireType::kRelease:
      return nullptr;
    case WireType::kBye:
      from.has_bye = true;
      from.was_aborted = wire.value != 0;
      from.bye_number = wire.number;
      state_.has_losses = true;
      return nullptr;
  }
  return "its type is unknown";
}

// Fails requests that need a peer that has ended or was lost.
void MessageChannel::HandleDepartures() {
  if (!state_.has_losses) return;
  state_.has_losses = false;
  for (int rank = 0; rank < state_.nranks; ++rank) {
    Peer& gone = state_.peer(rank);
    if (!gone.is_gone()) continue;
    gone.controls.Clear();
    bool was_needed = false;
    for (Request* offer : gone.offers) {
      if (offer == nullptr) continue;
      sends_.End(offer, RequestState::kFailed);
      was_needed = true;
    }
    for (uint64_t number = gone.released; number < gone.received; ++number) {
      Slot& slot = gone.slot(number);
      if (slot.state != SlotState::kTaken || slot.taker->state != RequestState::kReceiving) {
        continue;
      }
      receives_.End(slot.taker, RequestState::kFailed);
      was_needed = true;
    }
    if (was_needed) state_.ReportDeparture(rank);
    receives_.MatchPosted(rank);
    ++state_.events;  // A caller that waits for capacity learns of the loss from Send.
  }
}

onebitResult_t MessageChannel::Progress() {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    Drive();
    return onebitSuccess;
  });
}

// Notes that a test returned pending because the frame transport has not sent `frame` yet.
void MessageChannel::Watch(Peer& to, uint64_t frame) {
  to.watched_frame = std::min(to.watched_frame, frame);
  has_watches_ = true;
}

void MessageChannel::CheckWatchedFrames() {
  if (!has_watches_) return;
  has_watches_ = false;
  for (Peer& to : state_.peers) {
    if (to.watched_frame == Peer::kNoFrame) continue;
    if (to.link->sent >= to.watched_frame || to.is_gone()) {
      to.watched_frame = Peer::kNoFrame;
      ++state_.events;
    } else {
      has_watches_ = true;
    }
  }
}

// Makes progress on everything. False if there was nothing to do.
bool MessageChannel::Drive() {
  bool has_moved = false;
  int rounds = 0;
  while (rounds < kRoundsOfProgress && state_.frames.Progress()) ++rounds;
  has_moved |= rounds != 0;
  HandleDepartures();
  controls_.FlushAll();
  has_moved |= sends_.Pump();
  HandleDepartures();
  CheckWatchedFrames();
  if (!has_moved) controls_.AnnounceReleasedWhenIdle();
  return has_moved;
}

onebitResult_t MessageChannel::Wait(uint64_t timeout_ms) {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    const uint64_t timeout_ns = std::min(timeout_ms, kLongestWaitMs) * kNsPerMs;
    const uint64_t start = state_.events == seen_events_ ? Now() : 0;
    uint64_t idle_since = start;
    while (state_.events == seen_events_ && !lock_.is_aborted()) {
      const bool has_moved = Drive();
      if (state_.events != seen_events_) break;
      const uint64_t now = Now();
      if (now - start >= timeout_ns) break;
      if (has_moved) {
        idle_since = now;
      } else if (now - idle_since >= spin_ns_) {
        state_.frames.Sleep(timeout_ns - (now - start));
      }
    }
    seen_events_ = state_.events;
    return lock_.is_aborted() ? onebitAborted : onebitSuccess;
  });
}

}  // namespace onebit::channel
