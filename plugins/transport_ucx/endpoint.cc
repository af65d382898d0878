// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Life of an endpoint and of its requests.
#include "plugins/transport_ucx/endpoint.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "plugins/transport_ucx/address.h"

namespace onebit::ucx {

Endpoint::Endpoint(Context* context, const onebitTransportCommInfo& info)
    : context_(context),
      rank_(info.rank),
      nranks_(info.nranks),
      comm_id_(info.commId),
      peer_error_(info.peerError),
      peer_error_argument_(info.peerErrorArgument) {
  context_->AddEndpoint();
}

onebitResult_t Endpoint::Create(Context* context, const onebitTransportCommInfo& info,
                                std::unique_ptr<Endpoint>* endpoint) {
  if (!HasDescriptorsForUcx()) return context->NoDescriptors();
  std::unique_ptr<Endpoint> created(new Endpoint(context, info));
  const LogScope scope(context->host());
  created->abort_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (created->abort_fd_ < 0) {
    context->Warn("ucx: no descriptor for an endpoint: %s", std::strerror(errno));
    return onebitSystemError;
  }
  const onebitResult_t result =
      Worker::Create(*context, OnArrival, created.get(), &created->worker_);
  if (result == onebitSuccess) *endpoint = std::move(created);
  return result;
}

onebitResult_t Endpoint::GetAddress(void* address, size_t* bytes) const {
  const LogScope scope(context_->host());
  const std::string worker_address = worker_->Address();
  if (worker_address.empty()) return onebitSystemError;
  if (sizeof(AddressHead) + worker_address.size() > kMostAddressBytes) {
    context_->Warn(
        "ucx: the address has %zu bytes, more than %zu: name fewer devices by "
        "ONEBIT_UCX_NET_DEVICES",
        worker_address.size(), kMostAddressBytes);
    return onebitSystemError;
  }
  AddressHead head{.comm_id = comm_id_,
                   .host = context_->identity(),
                   .machine = context_->machine(),
                   .rank = static_cast<uint32_t>(rank_),
                   .nranks = static_cast<uint32_t>(nranks_),
                   .eager_bytes = static_cast<uint32_t>(context_->options().eager_bytes),
                   .early_bytes = static_cast<uint32_t>(context_->options().early_bytes),
                   .window = kWindow,
                   .can_share_memory = context_->can_share_memory()};
  gethostname(head.host_name, sizeof head.host_name - 1);
  *bytes = WriteAddress(head, worker_address.data(), worker_address.size(), address);
  return onebitSuccess;
}

onebitResult_t Endpoint::CheckPeer(int peer) const {
  if (!is_connected_) return onebitInvalidUsage;
  return peer >= 0 && peer < nranks_ ? onebitSuccess : onebitInvalidArgument;
}

onebitResult_t Endpoint::Test(Request* request, onebitTransportState* state) {
  return WithTurn([&] {
    switch (request->state) {
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
      case RequestState::kDone:
        // A caller that expects no more of this rank need not come back soon.
        if (peer(request->peer).posted == nullptr) TellReleasedNow(request->peer);
        requests_->Return(request);
        *state = onebitTransportDone;
        return onebitSuccess;
      case RequestState::kSent:
        *state = onebitTransportDone;
        return onebitSuccess;
      case RequestState::kFailed: {
        // Lost, unless the peer said that it ends, or is well and gave up this message only.
        const Peer& other = peer(request->peer);
        const bool is_lost = other.link.status != UCS_OK && !other.has_bye;
        requests_->Return(request);
        return is_lost ? onebitPeerLost : onebitRemoteError;
      }
      case RequestState::kUnused:
        break;
    }
    return onebitInvalidUsage;
  });
}

onebitResult_t Endpoint::Cancel(Request* request) {
  if (request->state == RequestState::kUnused) return onebitInvalidUsage;
  if (request->state == RequestState::kSent) return onebitSuccess;
  turn_.Take();
  const LogScope scope(context_->host());
  Peer& other = peer(request->peer);
  switch (request->state) {
    case RequestState::kOffered:
    case RequestState::kStreaming:
    case RequestState::kLeaving:
      EndOffer(request, RequestState::kFailed);
      Tell(request->peer, WireType::kWithdraw, request->number);
      break;
    case RequestState::kPosted:
      other.posted = nullptr;
      break;
    case RequestState::kHeader:
    case RequestState::kReceiving:
      if (request->payload_bytes > context_->options().eager_bytes) {
        Tell(request->peer, WireType::kDrop, request->number);
      }
      EndReceive(request, RequestState::kFailed);
      break;
    case RequestState::kDone:
    case RequestState::kFailed:
    case RequestState::kUnused:
    case RequestState::kSent:
      break;
  }
  requests_->Return(request);
  GiveTurn();
  return onebitSuccess;
}

void Endpoint::GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const {
  *bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  *messages_sent = messages_sent_.load(std::memory_order_relaxed);
}

onebitResult_t Endpoint::DescribePeer(int peer, char* text, size_t capacity) const {
  const onebitResult_t check = CheckPeer(peer);
  if (check != onebitSuccess) return check;
  std::snprintf(text, capacity, "%s", peers_[static_cast<size_t>(peer)].route.c_str());
  return onebitSuccess;
}

}  // namespace onebit::ucx
