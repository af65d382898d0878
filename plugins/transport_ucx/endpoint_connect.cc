// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How the endpoints of a communicator find each other.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "plugins/transport_ucx/address.h"
#include "plugins/transport_ucx/endpoint.h"

namespace onebit::ucx {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;

// A send needs a request until the receiver has released its place. Receives need one from the post
// to the test that says done; twice the window leaves room for callers that test late.
constexpr size_t kRequestsPerPeer = 3 * kWindow;

}  // namespace

// What the addresses say of each rank.
struct Endpoint::Plan {
  std::vector<AddressHead> heads;
  std::vector<bool> shares_memory;
  uint32_t ranks_here = 0;  // on this machine: they share its processors
};

onebitResult_t Endpoint::Connect(const void* const* addresses, const size_t* address_bytes,
                                 uint64_t timeout_ms) {
  if (!peers_.empty()) return onebitInvalidUsage;
  turn_.Take();
  const LogScope scope(context_->host());
  Plan plan;
  onebitResult_t result = ReadAddresses(addresses, address_bytes, &plan);
  if (result == onebitSuccess) result = MakeLinks(addresses, plan);
  if (result == onebitSuccess) result = Meet(plan, timeout_ms);
  is_connected_ = result == onebitSuccess;
  GiveTurn();
  return result;
}

onebitResult_t Endpoint::ReadAddresses(const void* const* addresses, const size_t* address_bytes,
                                       Plan* plan) {
  const HostIdentity& here = context_->identity();
  for (int rank = 0; rank < nranks_; ++rank) {
    AddressHead head;
    const char* problem = ReadAddress(addresses[rank], address_bytes[rank], &head);
    if (problem != nullptr) {
      context_->Warn("ucx: rank %d: the address of rank %d (%zu bytes) is unusable: %s", rank_,
                     rank, address_bytes[rank], problem);
      return onebitInvalidArgument;
    }
    if (head.comm_id != comm_id_ || head.rank != static_cast<uint32_t>(rank) ||
        head.nranks != static_cast<uint32_t>(nranks_)) {
      context_->Warn(
          "ucx: rank %d: the address of rank %d belongs to rank %u of %u in communicator "
          "%llx",
          rank_, rank, head.rank, head.nranks, static_cast<unsigned long long>(head.comm_id));
      return onebitInvalidArgument;
    }
    const Options& options = context_->options();
    if (head.eager_bytes != options.eager_bytes || head.early_bytes != options.early_bytes ||
        head.window != kWindow) {
      context_->Warn(
          "ucx: rank %d has ONEBIT_UCX_EAGER_BYTES=%zu and ONEBIT_UCX_EARLY_BYTES=%zu, rank %d on "
          "%s has %u and %u: they must be equal",
          rank_, options.eager_bytes, options.early_bytes, rank, head.host_name, head.eager_bytes,
          head.early_bytes);
      return onebitInvalidUsage;
    }
    // Both ends must come to the same answer: it follows from what both have said alone.
    const bool is_local = head.host == here;
    if (head.machine == context_->machine()) ++plan->ranks_here;
    plan->shares_memory.push_back(is_local && head.can_share_memory != 0 &&
                                  context_->can_share_memory());
    plan->heads.push_back(head);
  }
  return onebitSuccess;
}

// Everything that messages need is allocated here.
onebitResult_t Endpoint::MakeLinks(const void* const* addresses, const Plan& plan) {
  const auto ranks = static_cast<size_t>(nranks_);
  const size_t eager_bytes = context_->options().eager_bytes;
  early_bytes_ = EarlyBytes(context_->options(), ranks);
  place_bytes_ = std::max(early_bytes_, eager_bytes);
  requests_ = std::make_unique<RequestPool>(kRequestsPerPeer * ranks);
  small_slots_ =
      std::make_unique<SlotPool>(kMostSmallInFlight * ranks, kMostHeaderBytes + eager_bytes);
  large_slots_ = std::make_unique<SlotPool>(kMostPiecesInFlight * ranks,
                                            kMostHeaderBytes + kNetworkPieceBytes);
  streaming_.reserve(ranks);
  flushing_.reserve(ranks);
  spin_ns_ = context_->spin_ns(plan.ranks_here);
  peers_ = std::vector<Peer>(ranks);
  for (int rank = 0; rank < nranks_; ++rank) {
    Peer& to = peer(rank);
    to.places = std::make_unique<Place[]>(kWindow);
    to.place_memory = std::make_unique_for_overwrite<std::byte[]>(kWindow * place_bytes_);
    to.link.shares_memory = plan.shares_memory[static_cast<size_t>(rank)];
    to.link.has_losses = &has_losses_;
    const auto* address = static_cast<const std::byte*>(addresses[rank]) + sizeof(AddressHead);
    const ucs_status_t status = worker_->Connect(address, &to.link);
    if (status != UCS_OK) {
      context_->Warn("ucx: rank %d has no way to rank %d on %s: %s (%s); ONEBIT_UCX_TLS=%s", rank_,
                     rank, plan.heads[static_cast<size_t>(rank)].host_name,
                     ucs_status_string(status), LogScope::LastError().c_str(),
                     context_->options().tls.c_str());
      return onebitSystemError;
    }
    to.route = Worker::Route(to.link);
  }
  return onebitSuccess;
}

// Greets every rank and waits for the greetings of all. A rank is done when it has heard from all
// and its own greetings are gone: so nobody depends on it any more.
onebitResult_t Endpoint::Meet(const Plan& plan, uint64_t timeout_ms) {
  const uint64_t start = Now();
  const uint64_t timeout_ns = std::min<uint64_t>(timeout_ms, 86'400'000) * kNsPerMs;
  // With a payload, so that it goes the way of long messages: see Send.
  for (int rank = 0; rank < nranks_; ++rank) {
    const WireHeader wire = Wire(peer(rank), WireType::kHello, 0, 0);
    constexpr std::byte kPayload[256] = {};
    Worker::Send(&peer(rank).link, &wire, sizeof wire, kPayload, sizeof kPayload,
                 large_slots_.get(), kMostPiecesInFlight);
  }
  while (true) {
    Drive();
    if (turn_.is_aborted()) return onebitAborted;
    std::string missing;
    for (int rank = 0; rank < nranks_; ++rank) {
      const Peer& other = peer(rank);
      const AddressHead& head = plan.heads[static_cast<size_t>(rank)];
      if (other.link.status != UCS_OK) {
        context_->Warn("ucx: rank %d cannot reach rank %d on %s by %s: %s", rank_, rank,
                       head.host_name, other.route.c_str(), ucs_status_string(other.link.status));
        return onebitPeerLost;
      }
      if (other.has_hello && other.link.in_flight == 0) continue;
      char text[192];
      std::snprintf(text, sizeof text, " %d (on %s, by %s)", rank, head.host_name,
                    other.route.c_str());
      missing += text;
    }
    if (missing.empty()) return onebitSuccess;
    const uint64_t elapsed = Now() - start;
    if (elapsed >= timeout_ns) {
      context_->Warn("ucx: rank %d waited %llu ms in vain for rank%s", rank_,
                     static_cast<unsigned long long>(timeout_ms), missing.c_str());
      return onebitTimeout;
    }
    Sleep(std::min(timeout_ns - elapsed, 10 * kNsPerMs));
  }
}

}  // namespace onebit::ucx
