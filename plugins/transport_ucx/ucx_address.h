// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others about its endpoint.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/common/host_identity.h"

namespace onebit::ucx {

// UCX's address of the worker follows it.
struct AddressHead {
  uint64_t magic;
  uint64_t checksum;  // of all that follows this member, UCX's address included
  uint64_t comm_id;
  plugin::HostIdentity host;
  uint64_t machine;
  uint32_t rank;
  uint32_t nranks;
  uint32_t eager_bytes;
  uint32_t early_bytes;
  uint32_t window;
  uint32_t can_share_memory;
  uint32_t worker_bytes;
  uint32_t unused;
  char host_name[64];  // for error texts; ends with 0
};

// Writes head (checksum, magic and worker_bytes are filled in) and UCX's address into `address`,
// which has room for them.
size_t WriteAddress(AddressHead head, const void* worker_address, size_t worker_bytes,
                    void* address);

// Reads an address from another process. Returns null, or what is wrong with it. UCX reads its part
// of an address without looking at the length, so nothing but what WriteAddress wrote may get
// there.
const char* ReadAddress(const void* address, size_t bytes, AddressHead* head);

}  // namespace onebit::ucx
