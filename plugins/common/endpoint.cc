// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Construction and destruction of an endpoint, and the interface for its requests.
#include "plugins/common/endpoint.h"

#include <cstdio>
#include <utility>

namespace onebit::plugin {

Endpoint::Endpoint(BaseContext* context, const onebitTransportCommInfo& info, const Limits& limits,
                   std::unique_ptr<FrameTransport> frames)
    : context_(context),
      rank_(info.rank),
      nranks_(info.nranks),
      comm_id_(info.commId),
      peer_error_(info.peerError),
      peer_error_argument_(info.peerErrorArgument),
      frames_(std::move(frames)),
      eager_bytes_(limits.eager_bytes),
      early_bytes_(EarlyBytes(limits.early_bytes, static_cast<size_t>(info.nranks))) {
  context_->AddEndpoint();
  frames_->SetSink(this);
}

onebitResult_t Endpoint::CheckPeer(int peer) const {
  if (!is_connected_) return onebitInvalidUsage;
  return peer >= 0 && peer < nranks_ ? onebitSuccess : onebitInvalidArgument;
}

onebitResult_t Endpoint::Test(Request* request, onebitTransportState* state) {
  return WithLock([&] {
    switch (request->state) {
      case RequestState::kStaged: {
        Peer& to = peer(request->peer);
        if (to.is_gone() || to.link->sent >= request->frame) break;
        Watch(to, request->frame);
        *state = onebitTransportPending;
        return onebitSuccess;
      }
      case RequestState::kOffered:
      case RequestState::kStreaming:
      case RequestState::kLeaving:
      case RequestState::kPosted:
      case RequestState::kReceiving:
        *state = onebitTransportPending;
        return onebitSuccess;
      case RequestState::kHeader:
        *state = onebitTransportHeader;
        return onebitSuccess;
      case RequestState::kDone: {
        Peer& from = peer(request->peer);
        // A caller that expects nothing more from this rank may not come back soon.
        if (from.posted != nullptr) break;
        AnnounceReleasedNow(request->peer);
        if (from.HasAllAnswers()) break;
        Watch(from, from.answer_frame);
        *state = onebitTransportPending;
        return onebitSuccess;
      }
      case RequestState::kSent:
        *state = onebitTransportDone;
        return onebitSuccess;
      case RequestState::kFailed: {
        // The peer counts as lost, unless it announced its end, or is healthy and gave up only this
        // message.
        const Peer& other = peer(request->peer);
        const bool is_lost = other.link->is_lost() && !other.has_bye;
        requests_->Return(request);
        return is_lost ? onebitPeerLost : onebitRemoteError;
      }
      case RequestState::kUnused:
        return onebitInvalidUsage;
    }
    requests_->Return(request);
    *state = onebitTransportDone;
    return onebitSuccess;
  });
}

onebitResult_t Endpoint::Cancel(Request* request) {
  if (request->state == RequestState::kUnused) return onebitInvalidUsage;
  if (request->state == RequestState::kSent) return onebitSuccess;
  lock_.Lock();
  Peer& other = peer(request->peer);
  switch (request->state) {
    case RequestState::kOffered:
    case RequestState::kStreaming:
    case RequestState::kLeaving:
      EndOffer(request, RequestState::kFailed);
      SendControl(request->peer, WireType::kWithdraw, request->number);
      break;
    case RequestState::kPosted:
      other.posted = nullptr;
      AnnounceReleasedNow(request->peer);
      break;
    case RequestState::kHeader:
    case RequestState::kReceiving:
      if (request->payload_bytes > eager_bytes_) {
        SendControl(request->peer, WireType::kDrop, request->number);
      }
      EndReceive(request, RequestState::kFailed);
      break;
    case RequestState::kStaged:
    case RequestState::kDone:
    case RequestState::kFailed:
    case RequestState::kUnused:
    case RequestState::kSent:
      break;
  }
  requests_->Return(request);
  ReleaseLock();
  return onebitSuccess;
}

void Endpoint::GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const {
  *bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  *messages_sent = messages_sent_.load(std::memory_order_relaxed);
}

onebitResult_t Endpoint::DescribePeer(int peer, char* text, size_t capacity) const {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  std::snprintf(text, capacity, "%s", peers_[static_cast<size_t>(peer)].link->route.c_str());
  return onebitSuccess;
}

}  // namespace onebit::plugin
