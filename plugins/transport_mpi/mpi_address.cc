// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Addresses, and the check before they are used.
#include "plugins/transport_mpi/mpi_address.h"

#include <cstring>
#include <type_traits>

namespace onebit::mpi {
namespace {

static_assert(std::has_unique_object_representations_v<Address>, "padding would travel");

constexpr uint64_t kMagic = 0x6f6e656269744d32;  // "onebitM2"

}  // namespace

void WriteAddress(const Address& address, void* bytes) {
  std::memcpy(bytes, &address, sizeof address);
  plugin::SealAddress(kMagic, bytes, sizeof address);
}

const char* ReadAddress(const void* bytes, size_t count, Address* address) {
  if (bytes == nullptr || count != sizeof *address) return "it has a wrong length";
  std::memcpy(address, bytes, sizeof *address);
  return plugin::ProblemOf(kMagic, bytes, count);
}

}  // namespace onebit::mpi
