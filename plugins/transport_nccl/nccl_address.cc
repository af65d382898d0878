// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Addresses, and the check before they are used.
#include "plugins/transport_nccl/nccl_address.h"

#include <cstring>
#include <utility>

namespace onebit::nccl {

onebitResult_t ReadAddresses(const plugin::BaseContext& context, int rank, uint64_t comm_id,
                             const NcclApi& api, std::span<const void* const> addresses,
                             std::span<const size_t> address_bytes, std::vector<Address>* read) {
  std::vector<Address> all(addresses.size());
  for (size_t peer = 0; peer < all.size(); ++peer) {
    Address& address = all[peer];
    const bool has_size = addresses[peer] != nullptr && address_bytes[peer] == sizeof address;
    if (has_size) std::memcpy(static_cast<void*>(&address), addresses[peer], sizeof address);
    if (!has_size || address.magic != Address().magic) {
      context.Warn("rank %d: the address of rank %zu is from another transport", rank, peer);
      return onebitInvalidArgument;
    }
    if (address.comm_id != comm_id) {
      context.Warn("rank %d: the address of rank %zu belongs to another communicator", rank, peer);
      return onebitInvalidArgument;
    }
    if (address.version != api.version) {
      context.Warn(
          "rank %d has NCCL %s (code %d), rank %zu has code %d; install the same NCCL on all hosts",
          rank, api.release.c_str(), api.version, peer, address.version);
      return onebitMismatch;
    }
    address.bus_id[sizeof address.bus_id - 1] = '\0';
    address.host[sizeof address.host - 1] = '\0';
  }
  *read = std::move(all);
  return onebitSuccess;
}

std::string Describe(const Address& address) {
  return std::string("GPU ") + address.bus_id + " of host " + address.host;
}

}  // namespace onebit::nccl
