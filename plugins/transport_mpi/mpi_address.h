// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The address of an endpoint that a rank gives to the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/common/address_head.h"

namespace onebit::mpi {

struct Address {
  plugin::AddressHead head;
  uint64_t job;      // distinguishes jobs, as far as their launcher does
  uint64_t library;  // identifies the version of MPI
  uint32_t world_rank;
  uint32_t world_size;
  uint32_t has_group;
  uint32_t unused;
};

void WriteAddress(const Address& address, void* bytes);

// Reads an address from another process. Returns null, or what is wrong with it.
const char* ReadAddress(const void* bytes, size_t count, Address* address);

}  // namespace onebit::mpi
