// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The address of an endpoint that a rank gives to the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/common/host_identity.h"

namespace onebit::ucx {

// UCX's address of the worker follows it.
struct AddressHead {
  uint64_t magic;
  uint64_t checksum;  // covers everything after this member, UCX's address included
  uint64_t comm_id;
  plugin::HostIdentity host;
  uint64_t machine;
  uint32_t rank;
  uint32_t nranks;
  uint32_t eager_bytes;
  uint32_t early_bytes;
  uint32_t can_share_memory;
  uint32_t worker_bytes;
  char host_name[64];  // for error texts; NUL-terminated
};

// Writes the head (this fills in checksum, magic and worker_bytes) and UCX's address into
// `address`, which must be large enough for both.
size_t WriteAddress(AddressHead head, const void* worker_address, size_t worker_bytes,
                    void* address);

// Reads an address from another process. Returns null, or what is wrong with it. UCX parses its
// part of an address without looking at the length, so only bytes that WriteAddress wrote may reach
// it.
const char* ReadAddress(const void* address, size_t bytes, AddressHead* head);

}  // namespace onebit::ucx
