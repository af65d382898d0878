// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses and makes links of them.
#include <cstdio>
#include <map>
#include <string>

#include "plugins/transport_ucx/ucx_frame_transport.h"
#include "plugins/transport_ucx/ucx_process.h"

namespace onebit::ucx {
namespace {

// UCX's reason, in words that help.
const char* Advice(const std::string& reason) {
  if (reason.find("auxiliary") != reason.npos) {
    return ": UCX connects rc by messages over ud, which is not in the list: add ud, or use rc, "
           "which has it inside";
  }
  if (reason.find("no peer failure handler") != reason.npos) {
    return ": no network device here supports this list; tcp,shm,self needs no adapter";
  }
  return "";
}

}  // namespace

onebitResult_t UcxFrameTransport::GetAddress(void* address, size_t* bytes) {
  const LogScope scope(context_->host());
  const std::string worker_address = worker_->Address();
  if (worker_address.empty()) return onebitSystemError;
  if (sizeof(Address) + worker_address.size() > kMostAddressBytes) {
    context_->Warn(
        "the address has %zu bytes, more than %zu: name fewer devices in ONEBIT_UCX_NET_DEVICES",
        worker_address.size(), kMostAddressBytes);
    return onebitSystemError;
  }
  const Address mine{.head = HeadWith(context_->options(), context_->machine()),
                     .host = context_->identity(),
                     .can_share_memory = static_cast<uint16_t>(context_->can_share_memory()),
                     .uses_rendezvous = static_cast<uint16_t>(context_->options().uses_rendezvous),
                     .worker_bytes = 0};
  *bytes = WriteAddress(mine, worker_address.data(), worker_address.size(), address);
  return onebitSuccess;
}

onebitResult_t UcxFrameTransport::Connect(const void* const* addresses, const size_t* address_bytes,
                                          uint64_t /*timeout_ms*/) {
  const LogScope scope(context_->host());
  const onebitResult_t result = ReadAddresses(addresses, address_bytes);
  return result == onebitSuccess ? MakeLinks(addresses) : result;
}

onebitResult_t UcxFrameTransport::ReadAddresses(const void* const* addresses,
                                                const size_t* address_bytes) {
  const plugin::HostIdentity& here = context_->identity();
  const plugin::AddressHead own = HeadWith(context_->options(), context_->machine());
  links_ = std::vector<UcxLink>(static_cast<size_t>(nranks_));
  for (int rank = 0; rank < nranks_; ++rank) {
    Address address;
    const char* problem = ReadAddress(addresses[rank], address_bytes[rank], &address);
    // First, because rendezvous changes the early limit, which CheckAddress compares.
    if (problem == nullptr && address.head.comm_id == comm_id_ &&
        address.uses_rendezvous != context_->options().uses_rendezvous) {
      context_->Warn("rank %d has ONEBIT_UCX_RENDEZVOUS=%u, rank %d on %s has %u: it must be equal",
                     rank_, static_cast<unsigned>(context_->options().uses_rendezvous), rank,
                     address.head.host_name, unsigned{address.uses_rendezvous});
      return onebitInvalidUsage;
    }
    const onebitResult_t result = plugin::CheckAddress(
        *context_, own,
        {.rank = rank, .bytes = address_bytes[rank], .problem = problem, .head = address.head});
    if (result != onebitSuccess) return result;
    // Both ends must come to the same answer, so it depends only on the two addresses.
    const bool is_local = address.host == here;
    UcxLink& link = links_[static_cast<size_t>(rank)];
    link.isHere = address.head.machine == context_->machine() ? 1 : 0;
    link.shares_memory = is_local && address.can_share_memory != 0 && context_->can_share_memory();
    link.isPaced = link.shares_memory ? 0 : 1;
    link.pieceBytes = link.shares_memory                         ? kSharedPieceBytes
                      : context_->options().uses_rendezvous != 0 ? kRendezvousPieceBytes
                                                                 : kNetworkPieceBytes;
    link.SetHost(address.head.host_name);
    link.has_losses = &has_losses_;
  }
  return onebitSuccess;
}

onebitResult_t UcxFrameTransport::MakeLinks(const void* const* addresses) {
  const auto ranks = static_cast<size_t>(nranks_);
  const Options& options = context_->options();
  const bool uses_rendezvous = options.uses_rendezvous != 0;
  short_frames_.most_in_flight = kMostSmallInFlight;
  short_frames_.pool = std::make_unique<SlotPool>(
      kMostSmallInFlight * ranks, ONEBIT_TRANSPORT_FRAME_HEADER_BYTES + options.eager_bytes);
  pieces_.most_in_flight = kMostPiecesInFlight;
  pieces_.pool = std::make_unique<SlotPool>(
      kMostPiecesInFlight * ranks,
      ONEBIT_TRANSPORT_FRAME_HEADER_BYTES +
          (uses_rendezvous ? kRendezvousPieceBytes : kNetworkPieceBytes));
  if (uses_rendezvous) {
    pieces_.registration = worker_->Register(pieces_.pool.get());
    worker_->EnableRendezvous(ranks);
  }
  std::map<std::string, int> ranks_by_route;
  for (int rank = 0; rank < nranks_; ++rank) {
    UcxLink& link = links_[static_cast<size_t>(rank)];
    const auto* address = static_cast<const std::byte*>(addresses[rank]) + sizeof(Address);
    const ucs_status_t status = worker_->Connect(address, &link);
    if (status != UCS_OK) {
      const std::string reason = LogScope::LastError();
      context_->Warn("rank %d cannot reach rank %d on %s: %s (%s); ONEBIT_UCX_TLS=%s%s", rank_,
                     rank, link.host, ucs_status_string(status), reason.c_str(),
                     context_->options().tls, Advice(reason));
      return ResultOf(status);
    }
    const std::string route = Worker::Route(link);
    if (route.starts_with("tcp")) link.opening = Opening::kConnecting;
    link.SetRoute(route);
    if (rank != rank_) ++ranks_by_route[route];
  }
  for (const auto& [route, count] : ranks_by_route) {
    char text[160];
    std::snprintf(text, sizeof text, "ucx: rank %d reaches %d rank%s by %s", rank_, count,
                  count == 1 ? "" : "s", route.c_str());
    context_->host().log(onebitLogInfo, text);
  }
  return onebitSuccess;
}

}  // namespace onebit::ucx
