// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Construction, and the interface for requests.
#include "channel/message_channel.h"

#include <cstdio>

namespace onebit::channel {

MessageChannel::MessageChannel(ChannelContext* context, const MessageInfo& info)
    : context_(context),
      rank_(info.rank),
      nranks_(info.nranks),
      comm_id_(info.comm_id),
      peer_error_(info.peer_error),
      peer_error_argument_(info.peer_error_argument),
      frames_(context->functions(), context->transport()),
      eager_bytes_(context->properties().eagerBytes),
      early_bytes_(EarlyBytes(context->properties().earlyBytes, static_cast<size_t>(info.nranks))) {
  context_->AddChannel();
}

onebitResult_t MessageChannel::Open(const MessageInfo& info) {
  return frames_.Open(
      {.structSize = sizeof(onebitTransportCommInfo),
       .rank = rank_,
       .nranks = nranks_,
       .commId = comm_id_,
       .placeFrame = [](void* channel, const void* header, size_t header_bytes,
                        size_t payload_bytes) -> void* {
         return static_cast<MessageChannel*>(channel)->Place(header, header_bytes, payload_bytes);
       },
       .onFrame =
           [](void* channel, const void* header, size_t header_bytes, const void* payload,
              size_t payload_bytes) {
             static_cast<MessageChannel*>(channel)->OnFrame(header, header_bytes, payload,
                                                            payload_bytes);
           },
       .onLoss = [](void* channel) { static_cast<MessageChannel*>(channel)->has_losses_ = true; },
       .onEvent = [](void* channel) { ++static_cast<MessageChannel*>(channel)->events_; },
       .argument = this,
       .key = info.key,
       .address = info.address,
       .addressBytes = info.address_bytes,
       .server = info.server,
       .serverBytes = info.server_bytes,
       .isOneHost = info.is_one_host ? 1 : 0,
       .group = info.group});
}

onebitResult_t MessageChannel::CheckPeer(int peer) const {
  if (!is_connected_) return onebitInvalidUsage;
  return peer >= 0 && peer < nranks_ ? onebitSuccess : onebitInvalidArgument;
}

onebitResult_t MessageChannel::Test(Request* request, TransferState* state) {
  return WithLock([&] {
    switch (request->state) {
      case RequestState::kStaged: {
        Peer& to = peer(request->peer);
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
        Peer& from = peer(request->peer);
        // A caller that expects nothing more from this rank may not come back soon.
        if (from.posted != nullptr) break;
        AnnounceReleasedNow(request->peer);
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
        const Peer& other = peer(request->peer);
        const bool is_lost = other.is_lost() && !other.has_bye;
        requests_->Return(request);
        return is_lost ? onebitPeerLost : onebitRemoteError;
      }
      case RequestState::kNative: {
        size_t bytes_done = 0;
        const onebitResult_t result = frames_.TestAllreduce(&bytes_done);
        *state =
            bytes_done == native_.payload_bytes ? TransferState::kDone : TransferState::kPending;
        return result;
      }
      case RequestState::kUnused:
        return onebitInvalidUsage;
    }
    requests_->Return(request);
    *state = TransferState::kDone;
    return onebitSuccess;
  });
}

onebitResult_t MessageChannel::Cancel(Request* request) {
  if (request->state == RequestState::kUnused) return onebitInvalidUsage;
  if (request->state == RequestState::kSent) return onebitSuccess;
  lock_.Lock();
  if (request->state == RequestState::kNative) {
    frames_.CancelAllreduce();
    ReleaseLock();
    return onebitSuccess;
  }
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
    case RequestState::kNative:
      break;
  }
  requests_->Return(request);
  ReleaseLock();
  return onebitSuccess;
}

void MessageChannel::GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const {
  *bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  *messages_sent = messages_sent_.load(std::memory_order_relaxed);
}

onebitResult_t MessageChannel::DescribePeer(int peer, char* text, size_t capacity) const {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  std::snprintf(text, capacity, "%s", peers_[static_cast<size_t>(peer)].link->route);
  return onebitSuccess;
}

onebitResult_t MessageChannel::AllReduce(const void* send, void* recv, size_t count,
                                         onebitDataType_t type, onebitRedOp_t op,
                                         Request** request) {
  return WithLock([&] {
    if (!is_connected_) return onebitInvalidUsage;
    const onebitResult_t result = frames_.StartAllreduce(send, recv, count, type, op);
    if (result != onebitSuccess) return result;
    native_.payload_bytes = count * sizeof(float);
    *request = &native_;
    return onebitSuccess;
  });
}

}  // namespace onebit::channel
