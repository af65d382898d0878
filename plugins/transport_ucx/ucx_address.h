// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The address of an endpoint that a rank gives to the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/common/address_head.h"
#include "plugins/common/host_identity.h"

namespace onebit::ucx {

// UCX's address of the worker follows it.
struct Address {
  plugin::AddressHead head;
  plugin::HostIdentity host;
  uint16_t can_share_memory;  // 0 or 1
  uint16_t uses_rendezvous;   // 0 or 1
  uint32_t worker_bytes;
};

// Writes the address (this fills in worker_bytes) and UCX's behind it into `bytes`, which must have
// room for both. Returns their size.
size_t WriteAddress(Address address, const void* worker_address, size_t worker_bytes, void* bytes);

// Reads an address from another process. Returns null, or what is wrong with it. UCX parses its
// part of an address without looking at the length, so only bytes that WriteAddress wrote may reach
// it.
const char* ReadAddress(const void* bytes, size_t count, Address* address);

}  // namespace onebit::ucx
