// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others about its endpoint.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit::mpi {

struct Address {
  uint64_t magic;     // WriteAddress
  uint64_t checksum;  // WriteAddress: of all that follows
  uint64_t comm_id;
  uint64_t machine;
  uint64_t job;      // tells two jobs apart, as far as their launcher does
  uint64_t library;  // of the version of MPI
  uint32_t rank;
  uint32_t nranks;
  uint32_t world_rank;
  uint32_t world_size;
  uint32_t eager_bytes;
  uint32_t early_bytes;
  uint32_t has_group;
  uint32_t unused;
  char host_name[64];  // for error texts; ends with 0
};

void WriteAddress(Address address, void* bytes);

// Reads an address from another process. Returns null, or what is wrong with it.
const char* ReadAddress(const void* bytes, size_t count, Address* address);

}  // namespace onebit::mpi
