// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The address of an endpoint that a rank gives to the others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit::mpi {

struct Address {
  uint64_t magic;     // set by WriteAddress
  uint64_t checksum;  // set by WriteAddress, over all following members
  uint64_t comm_id;
  uint64_t machine;
  uint64_t job;      // distinguishes jobs, as far as their launcher does
  uint64_t library;  // identifies the version of MPI
  uint32_t rank;
  uint32_t nranks;
  uint32_t world_rank;
  uint32_t world_size;
  uint32_t eager_bytes;
  uint32_t early_bytes;
  uint32_t has_group;
  uint32_t unused;
  char host_name[64];  // for error texts; NUL-terminated
};

void WriteAddress(Address address, void* bytes);

// Reads an address from another process. Returns null, or what is wrong with it.
const char* ReadAddress(const void* bytes, size_t count, Address* address);

}  // namespace onebit::mpi
