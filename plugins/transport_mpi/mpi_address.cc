// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Addresses, and the check before they are used.
#include "plugins/transport_mpi/mpi_address.h"

#include <cstring>
#include <type_traits>

#include "plugins/common/host_identity.h"

namespace onebit::mpi {
namespace {

static_assert(std::has_unique_object_representations_v<Address>, "padding would travel");

constexpr uint64_t kMagic = 0x6f6e656269744d31;  // "onebitM1"

uint64_t ChecksumOf(const Address& address) {
  constexpr size_t kFrom = offsetof(Address, comm_id);
  return plugin::HashOf(reinterpret_cast<const std::byte*>(&address) + kFrom,
                        sizeof address - kFrom, kMagic);
}

}  // namespace

void WriteAddress(Address address, void* bytes) {
  address.magic = kMagic;
  address.checksum = ChecksumOf(address);
  std::memcpy(bytes, &address, sizeof address);
}

const char* ReadAddress(const void* bytes, size_t count, Address* address) {
  if (bytes == nullptr || count != sizeof *address) return "it has a wrong length";
  std::memcpy(address, bytes, sizeof *address);
  if (address->magic != kMagic) return "it is not one of this transport, or of another version";
  if (address->checksum != ChecksumOf(*address)) return "it was changed on its way";
  if (address->host_name[sizeof address->host_name - 1] != '\0') return "it is malformed";
  return nullptr;
}

}  // namespace onebit::mpi
