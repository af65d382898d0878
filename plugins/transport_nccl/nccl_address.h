// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Address: a rank gives it to the others before they connect.
#pragma once

#include <onebit/transport.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugins/common/base_context.h"
#include "plugins/transport_nccl/nccl_api.h"

namespace onebit::nccl {

struct Address {
  uint64_t comm_id = 0;
  uint32_t magic = 0x6c63636e;  // "nccl"
  int32_t version = 0;          // NCCL's version
  char bus_id[32] = {};
  char host[64] = {};
  UniqueId unique_id = {};  // set by rank 0, unless the application made the communicator
};

// Checks the addresses of all ranks. Logs the cause of an error.
onebitResult_t ReadAddresses(const plugin::BaseContext& context, int rank, uint64_t comm_id,
                             const NcclApi& api, std::span<const void* const> addresses,
                             std::span<const size_t> address_bytes, std::vector<Address>* read);

// Describes a rank: "GPU 0000:3b:00.0 of host a".
std::string Describe(const Address& address);

}  // namespace onebit::nccl
