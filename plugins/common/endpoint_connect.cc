// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Connects the endpoints of a communicator with each other.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

#include "plugins/common/endpoint.h"

namespace onebit::plugin {
namespace {

// A send needs a request until the receiver has released its slot. Receives need one from the post
// to the test that says done; twice the window leaves room for callers that test late.
constexpr size_t kRequestsPerPeer = 3 * kWindow;

}  // namespace

onebitResult_t Endpoint::Connect(const void* const* addresses, const size_t* address_bytes,
                                 uint64_t timeout_ms) {
  if (has_begun_) return onebitInvalidUsage;
  return WithLock([&] {  // The lock is released even if memory runs out.
    has_begun_ = true;
    const uint64_t start = Now();
    const uint64_t timeout_ns = std::min<uint64_t>(timeout_ms, 86'400'000) * kNsPerMs;
    onebitResult_t result =
        frames_->Open(addresses, address_bytes, timeout_ns, [this] { return lock_.is_aborted(); });
    if (result == onebitInvalidArgument) has_begun_ = false;  // The addresses lead nowhere.
    if (result != onebitSuccess) return result;
    MakePeers();
    result = ExchangeHellos(start, timeout_ns);
    is_connected_ = result == onebitSuccess;
    return result;
  });
}

// Allocates everything that messages need.
void Endpoint::MakePeers() {
  const auto ranks = static_cast<size_t>(nranks_);
  slot_bytes_ = std::max(early_bytes_, eager_bytes_);
  requests_ = std::make_unique<MessageRequests>(kRequestsPerPeer * ranks);
  streaming_.reserve(ranks);
  flushing_.reserve(ranks);
  spin_ns_ = context_->spin_ns(frames_->ranks_here());
  peers_ = std::vector<Peer>(ranks);
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& to = peer(rank);
    to.link = frames_->link(rank);
    to.slots = std::make_unique<Slot[]>(kWindow);
    to.slot_memory = std::make_unique_for_overwrite<std::byte[]>(kWindow * slot_bytes_);
  }
}

// Greets every rank and waits for the greetings of all. A rank is done when it has heard from all
// and its own greetings have left: from then on nobody depends on it.
onebitResult_t Endpoint::ExchangeHellos(uint64_t start, uint64_t timeout_ns) {
  // The greeting carries a payload so that it takes the path of long messages: see Send.
  for (int rank = 0; rank < nranks_; ++rank) {
    const WireHeader wire = Wire(peer(rank), WireType::kHello, 0, 0);
    constexpr std::byte kPayload[256] = {};
    frames_->Send(rank, FrameKind::kPiece, std::as_bytes(std::span(&wire, 1)), kPayload);
  }
  while (true) {
    Drive();
    if (lock_.is_aborted()) return onebitAborted;
    std::string missing;
    for (int rank = 0; rank < nranks_; ++rank) {
      const Peer& other = peer(rank);
      const Link& link = *other.link;
      if (link.is_lost()) {
        context_->Warn("rank %d cannot reach rank %d on %s by %s: %s", rank_, rank,
                       link.host.c_str(), link.route.c_str(), link.loss);
        return onebitPeerLost;
      }
      if (other.has_hello && link.in_flight() == 0) continue;
      char text[192];
      std::snprintf(text, sizeof text, " %d (on %s, by %s)", rank, link.host.c_str(),
                    link.route.c_str());
      missing += text;
    }
    if (missing.empty()) return onebitSuccess;
    const uint64_t elapsed = Now() - start;
    if (elapsed >= timeout_ns) {
      context_->Warn("rank %d waited %llu ms in vain for rank%s", rank_,
                     static_cast<unsigned long long>(timeout_ns / kNsPerMs), missing.c_str());
      return onebitTimeout;
    }
    frames_->Sleep(std::min(timeout_ns - elapsed, 10 * kNsPerMs));
  }
}

}  // namespace onebit::plugin
