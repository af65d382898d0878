// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses and makes links of them.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "plugins/transport_ucx/ucx_frame_transport.h"
#include "plugins/transport_ucx/ucx_process.h"

namespace onebit::ucx {

onebitResult_t UcxFrameTransport::GetAddress(void* address, size_t* bytes) {
  const LogScope scope(context_->host());
  const std::string worker_address = worker_->Address();
  if (worker_address.empty()) return onebitSystemError;
  if (sizeof(AddressHead) + worker_address.size() > kMostAddressBytes) {
    context_->Warn(
        "the address has %zu bytes, more than %zu: name fewer devices by "
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
                   .can_share_memory = context_->can_share_memory()};
  gethostname(head.host_name, sizeof head.host_name - 1);
  *bytes = WriteAddress(head, worker_address.data(), worker_address.size(), address);
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
  links_ = std::vector<UcxLink>(static_cast<size_t>(nranks_));
  for (int rank = 0; rank < nranks_; ++rank) {
    AddressHead head;
    const char* problem = ReadAddress(addresses[rank], address_bytes[rank], &head);
    if (problem != nullptr) {
      context_->Warn("rank %d: the address of rank %d (%zu bytes) is unusable: %s", rank_, rank,
                     address_bytes[rank], problem);
      return onebitInvalidArgument;
    }
    if (head.comm_id != comm_id_ || head.rank != static_cast<uint32_t>(rank) ||
        head.nranks != static_cast<uint32_t>(nranks_)) {
      context_->Warn(
          "rank %d: the address of rank %d belongs to rank %u of %u in communicator %llx", rank_,
          rank, head.rank, head.nranks, static_cast<unsigned long long>(head.comm_id));
      return onebitInvalidArgument;
    }
    const Options& options = context_->options();
    if (head.eager_bytes != options.eager_bytes || head.early_bytes != options.early_bytes) {
      context_->Warn(
          "rank %d has ONEBIT_UCX_EAGER_BYTES=%zu and ONEBIT_UCX_EARLY_BYTES=%zu, rank %d on "
          "%s has %u and %u: they must be equal",
          rank_, options.eager_bytes, options.early_bytes, rank, head.host_name, head.eager_bytes,
          head.early_bytes);
      return onebitInvalidUsage;
    }
    // Both ends must come to the same answer, so it depends only on the two addresses.
    const bool is_local = head.host == here;
    UcxLink& link = links_[static_cast<size_t>(rank)];
    link.isHere = head.machine == context_->machine() ? 1 : 0;
    link.shares_memory = is_local && head.can_share_memory != 0 && context_->can_share_memory();
    link.isPaced = link.shares_memory ? 0 : 1;
    link.pieceBytes = link.shares_memory ? kSharedPieceBytes : kNetworkPieceBytes;
    link.SetHost(head.host_name);
    link.has_losses = &has_losses_;
  }
  return onebitSuccess;
}

onebitResult_t UcxFrameTransport::MakeLinks(const void* const* addresses) {
  const auto ranks = static_cast<size_t>(nranks_);
  small_slots_ =
      std::make_unique<SlotPool>(kMostSmallInFlight * ranks, ONEBIT_TRANSPORT_FRAME_HEADER_BYTES +
                                                                 context_->options().eager_bytes);
  large_slots_ = std::make_unique<SlotPool>(
      kMostPiecesInFlight * ranks, ONEBIT_TRANSPORT_FRAME_HEADER_BYTES + kNetworkPieceBytes);
  for (int rank = 0; rank < nranks_; ++rank) {
    UcxLink& link = links_[static_cast<size_t>(rank)];
    const auto* address = static_cast<const std::byte*>(addresses[rank]) + sizeof(AddressHead);
    const ucs_status_t status = worker_->Connect(address, &link);
    if (status != UCS_OK) {
      context_->Warn("rank %d has no way to rank %d on %s: %s (%s); ONEBIT_UCX_TLS=%s", rank_, rank,
                     link.host, ucs_status_string(status), LogScope::LastError().c_str(),
                     context_->options().tls);
      return ResultOf(status);
    }
    link.SetRoute(Worker::Route(link));
  }
  return onebitSuccess;
}

}  // namespace onebit::ucx
