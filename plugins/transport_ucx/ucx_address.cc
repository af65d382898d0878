// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Addresses, and the check before they are used.
#include "plugins/transport_ucx/ucx_address.h"

#include <cstring>
#include <type_traits>

#include "plugins/transport_ucx/ucx_settings.h"

namespace onebit::ucx {
namespace {

static_assert(std::has_unique_object_representations_v<Address>, "padding would travel");

constexpr uint64_t kMagic = 0x6f6e656269745535;  // "onebitU5"

}  // namespace

size_t WriteAddress(Address address, const void* worker_address, size_t worker_bytes, void* bytes) {
  address.worker_bytes = static_cast<uint32_t>(worker_bytes);
  std::memcpy(bytes, &address, sizeof address);
  std::memcpy(static_cast<std::byte*>(bytes) + sizeof address, worker_address, worker_bytes);
  plugin::SealAddress(kMagic, bytes, sizeof address + worker_bytes);
  return sizeof address + worker_bytes;
}

const char* ReadAddress(const void* bytes, size_t count, Address* address) {
  if (bytes == nullptr || count < sizeof *address || count > kMostAddressBytes) {
    return "it has a wrong length";
  }
  std::memcpy(address, bytes, sizeof *address);
  if (address->worker_bytes != count - sizeof *address) return "it is truncated";
  return plugin::ProblemOf(kMagic, bytes, count);
}

}  // namespace onebit::ucx
