// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Construction and destruction of an endpoint, its requests, and waiting.
#include "plugins/transport_local/local_endpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace onebit::local {
namespace {

// A send needs a request only while its slot is taken. Receives need one from the post to the test
// that says done; twice the ring leaves room for callers that test late.
constexpr size_t kRequestsPerPeer = 3 * kSlotsPerRing;

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kLongestWaitMs = 86'400'000;  // a day; a wait may end early

}  // namespace

Endpoint::Endpoint(Context* context, const onebitTransportCommInfo& info)
    : context_(context),
      rank_(info.rank),
      nranks_(info.nranks),
      peer_error_(info.peerError),
      peer_error_argument_(info.peerErrorArgument),
      inbox_(std::make_shared<Inbox>(
          Inbox::Identity{.rank = info.rank, .nranks = info.nranks, .comm_id = info.commId},
          context->eager_bytes())),
      requests_(kRequestsPerPeer * static_cast<size_t>(info.nranks)),
      sent_{.state = RequestState::kSent},
      address_(context->Register(inbox_)) {}

Endpoint::~Endpoint() {
  requests_.ForEachInUse([this](Request* request) { Cancel(request); });
  // release: peers that see the end see every message and every withdrawal before it.
  inbox_->state().store(InboxState::kClosed, std::memory_order_release);
  NotifyPeers();
  context_->Unregister(address_);
}

onebitResult_t Endpoint::GetAddress(void* address, size_t* bytes) const {
  std::memcpy(address, &address_, sizeof address_);
  *bytes = sizeof address_;
  return onebitSuccess;
}

onebitResult_t Endpoint::Connect(const void* const* addresses, const size_t* address_bytes,
                                 uint64_t /*timeout_ms*/) {
  if (is_connected()) return onebitInvalidUsage;
  std::vector<Peer> peers(static_cast<size_t>(nranks_));
  for (int rank = 0; rank < nranks_; ++rank) {
    if (address_bytes[rank] != sizeof(Address)) {
      context_->Warn("local: the address of rank %d has %zu bytes, not %zu", rank,
                     address_bytes[rank], sizeof(Address));
      return onebitInvalidArgument;
    }
    Address address;
    std::memcpy(&address, addresses[rank], sizeof address);
    const Inbox::Identity expected{
        .rank = rank, .nranks = nranks_, .comm_id = inbox_->identity().comm_id};
    const onebitResult_t result =
        context_->Find(address, expected, &peers[static_cast<size_t>(rank)].inbox);
    if (result != onebitSuccess) return result;
  }
  posted_.reserve(static_cast<size_t>(nranks_));
  peers_ = std::move(peers);
  // Either an abort sees the peers, or this thread sees the abort, because both are seq_cst.
  has_peers_.store(true, std::memory_order_seq_cst);
  if (inbox_->state().load(std::memory_order_seq_cst) == InboxState::kOpen) return onebitSuccess;
  NotifyPeers();
  return onebitAborted;
}

onebitResult_t Endpoint::CheckPeer(int peer) const {
  if (!is_connected()) return onebitInvalidUsage;
  if (is_aborted()) return onebitAborted;
  return peer >= 0 && peer < nranks_ ? onebitSuccess : onebitInvalidArgument;
}

onebitResult_t Endpoint::Test(Request* request, onebitTransportState* state) {
  if (is_aborted()) return onebitAborted;
  if (request->state == RequestState::kOffered) ResolveOffer(request);
  switch (request->state) {
    case RequestState::kOffered:
    case RequestState::kPosted:
      *state = onebitTransportPending;
      return onebitSuccess;
    case RequestState::kHeader:
      *state = onebitTransportHeader;
      return onebitSuccess;
    case RequestState::kDone:
      requests_.Return(request);
      *state = onebitTransportDone;
      return onebitSuccess;
    case RequestState::kSent:
      *state = onebitTransportDone;
      return onebitSuccess;
    case RequestState::kFailed:
      requests_.Return(request);
      return onebitRemoteError;
    case RequestState::kUnused:
      break;
  }
  return onebitInvalidUsage;
}

onebitResult_t Endpoint::Cancel(Request* request) {
  switch (request->state) {
    case RequestState::kUnused:
      return onebitInvalidUsage;
    case RequestState::kSent:
      return onebitSuccess;
    case RequestState::kOffered:
      WithdrawOffer(request);
      break;
    case RequestState::kPosted:
    case RequestState::kHeader:
      DropReceive(request);
      break;
    case RequestState::kDone:
    case RequestState::kFailed:
      break;
  }
  requests_.Return(request);
  return onebitSuccess;
}

onebitResult_t Endpoint::Progress() {
  if (is_aborted()) return onebitAborted;
  // Sends need no progress: the receiver moves them, and Test checks their slots.
  for (size_t i = posted_.size(); i-- > 0;) {
    if (MatchPosted(posted_[i])) {
      posted_[i] = posted_.back();
      posted_.pop_back();
    }
  }
  return onebitSuccess;
}

onebitResult_t Endpoint::Wait(uint64_t timeout_ms) {
  if (is_aborted()) return onebitAborted;
  if (!has_own_event_) {
    const uint64_t timeout_ns = std::min(timeout_ms, kLongestWaitMs) * kNsPerMs;
    inbox_->doorbell().Wait(seen_rings_, timeout_ns, context_->spin_ns(), context_->clock());
  }
  has_own_event_ = false;
  seen_rings_ = inbox_->doorbell().count();
  return is_aborted() ? onebitAborted : onebitSuccess;
}

onebitResult_t Endpoint::Abort() {
  InboxState expected = InboxState::kOpen;
  // Only the first abort tells the peers, and this rank itself, which ends its wait. Before the
  // peers are known, Connect does it instead. relaxed on failure: there is nothing to do then.
  if (inbox_->state().compare_exchange_strong(
          expected, InboxState::kAborted, std::memory_order_seq_cst, std::memory_order_relaxed) &&
      has_peers_.load(std::memory_order_seq_cst)) {
    NotifyPeers();
  }
  return onebitSuccess;
}

void Endpoint::GetCounters(uint64_t* bytes_sent, uint64_t* messages_sent) const {
  *bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  *messages_sent = messages_sent_.load(std::memory_order_relaxed);
}

onebitResult_t Endpoint::DescribePeer(int peer, char* text, size_t capacity) const {
  if (!is_connected()) return onebitInvalidUsage;
  if (peer < 0 || peer >= nranks_) return onebitInvalidArgument;
  std::snprintf(text, capacity, "memory of this process");
  return onebitSuccess;
}

bool Endpoint::HasDeparted(const Peer& peer) const {
  // acquire on departures: a reader of the announcement also sees the state that it is about.
  return inbox_->departures().load(std::memory_order_acquire) != 0 &&
         peer.inbox->state().load(std::memory_order_acquire) != InboxState::kOpen;
}

void Endpoint::ReportDeparture(int peer) {
  Peer& departed = peers_[static_cast<size_t>(peer)];
  if (departed.is_reported || peer_error_ == nullptr) return;
  departed.is_reported = true;
  const InboxState state = departed.inbox->state().load(std::memory_order_acquire);
  char text[96];
  std::snprintf(text, sizeof text, "rank %d has %s its endpoint", peer,
                state == InboxState::kAborted ? "aborted" : "closed");
  peer_error_(peer_error_argument_, peer, onebitRemoteError, text);
}

void Endpoint::NotifyPeers() {
  for (Peer& peer : peers_) {
    // release: pairs with HasDeparted.
    peer.inbox->departures().fetch_add(1, std::memory_order_release);
    peer.inbox->doorbell().Ring();
  }
}

}  // namespace onebit::local
