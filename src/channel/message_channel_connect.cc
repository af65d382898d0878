// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Connects the endpoints of a communicator with each other.
#include <algorithm>
#include <span>
#include <string>

#include "base/format.h"
#include "channel/message_channel.h"

namespace onebit::channel {
namespace {

// A send needs a request until the receiver has released its slot. Receives need one from the post
// to the test that says done; twice the window leaves room for callers that test late.
constexpr size_t kRequestsPerPeer = 3 * kWindow;

}  // namespace

onebitResult_t MessageChannel::Connect(const void* const* addresses, const size_t* address_bytes,
                                       uint64_t timeout_ms) {
  if (has_begun_) return onebitInvalidUsage;
  return WithLock([&] {  // The lock is released even if memory runs out.
    has_begun_ = true;
    const uint64_t start = Now();
    timeout_ms = std::min<uint64_t>(timeout_ms, 86'400'000);
    onebitResult_t result = frames_.Connect(addresses, address_bytes, timeout_ms);
    if (result == onebitInvalidArgument) has_begun_ = false;  // The addresses lead nowhere.
    if (result == onebitSuccess) result = MakePeers();
    if (result == onebitSuccess) result = ExchangeHellos(start, timeout_ms * kNsPerMs);
    is_connected_ = result == onebitSuccess;
    return result;
  });
}

// Allocates everything that messages need.
onebitResult_t MessageChannel::MakePeers() {
  const auto ranks = static_cast<size_t>(nranks_);
  slot_bytes_ = std::max(early_bytes_, eager_bytes_);
  requests_ = std::make_unique<MessageRequests>(kRequestsPerPeer * ranks);
  streaming_.reserve(ranks);
  flushing_.reserve(ranks);
  peers_ = std::vector<Peer>(ranks);
  uint32_t ranks_here = 0;
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& to = peer(rank);
    to.link = frames_.link(rank);
    if (to.link == nullptr || to.link->pieceBytes == 0) return onebitInternalError;
    if (to.link->isHere != 0) ++ranks_here;
    to.slots = std::make_unique<Slot[]>(kWindow);
    to.slot_memory = std::make_unique_for_overwrite<std::byte[]>(kWindow * slot_bytes_);
    for (size_t i = kWindow; i-- > 0;) to.GivePartBack(to.slot_memory.get() + i * slot_bytes_);
  }
  spin_ns_ = context_->spin_ns(ranks_here);
  return onebitSuccess;
}

// Greets every rank that the transport has not reached yet and waits for their greetings. A rank is
// done when it has heard from all and its own greetings have left: from then on nobody depends on
// it.
onebitResult_t MessageChannel::ExchangeHellos(uint64_t start, uint64_t timeout_ns) {
  // The greeting carries a payload so that it takes the path of long messages: see Send.
  for (int rank = 0; rank < nranks_; ++rank) {
    if (peer(rank).link->isReached != 0) continue;
    const WireHeader wire = Wire(peer(rank), WireType::kHello, 0, 0);
    constexpr std::byte kPayload[256] = {};
    frames_.Send(rank, onebitFrameLong, std::as_bytes(std::span(&wire, 1)), kPayload);
  }
  while (true) {
    Drive();
    if (lock_.is_aborted()) return onebitAborted;
    std::string missing;
    for (int rank = 0; rank < nranks_; ++rank) {
      const Peer& other = peer(rank);
      const onebitTransportLink& link = *other.link;
      if (other.is_lost()) {
        context_->Warn("rank {} cannot reach rank {} on {} by {}: {}", rank_, rank, link.host,
                       link.route, other.loss());
        return onebitPeerLost;
      }
      if (link.isReached != 0 || (other.has_hello && other.in_flight() == 0)) continue;
      AppendFormat(&missing, " {} (on {}, by {})", rank, link.host, link.route);
    }
    if (missing.empty()) return onebitSuccess;
    const uint64_t elapsed = Now() - start;
    if (elapsed >= timeout_ns) {
      context_->Warn("rank {} waited {} ms in vain for rank{}", rank_, timeout_ns / kNsPerMs,
                     missing);
      return onebitTimeout;
    }
    frames_.Sleep(std::min(timeout_ns - elapsed, 10 * kNsPerMs));
  }
}

}  // namespace onebit::channel
