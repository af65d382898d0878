// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Addresses, and the check before they are used.
#include "plugins/transport_ucx/ucx_address.h"

#include <cstring>
#include <type_traits>

#include "plugins/transport_ucx/ucx_settings.h"

namespace onebit::ucx {
namespace {

static_assert(std::is_trivially_copyable_v<AddressHead>);
static_assert(std::has_unique_object_representations_v<AddressHead>, "padding would travel");

constexpr uint64_t kMagic = 0x6f6e656269745532;  // "onebitU2"
constexpr size_t kChecked = offsetof(AddressHead, comm_id);

uint64_t ChecksumOf(const void* address, size_t bytes) {
  return plugin::HashOf(static_cast<const std::byte*>(address) + kChecked, bytes - kChecked,
                        kMagic);
}

}  // namespace

size_t WriteAddress(AddressHead head, const void* worker_address, size_t worker_bytes,
                    void* address) {
  auto* out = static_cast<std::byte*>(address);
  const size_t bytes = sizeof head + worker_bytes;
  head.magic = kMagic;
  head.worker_bytes = static_cast<uint32_t>(worker_bytes);
  std::memcpy(out, &head, sizeof head);
  std::memcpy(out + sizeof head, worker_address, worker_bytes);
  head.checksum = ChecksumOf(out, bytes);
  std::memcpy(out, &head, sizeof head);
  return bytes;
}

const char* ReadAddress(const void* address, size_t bytes, AddressHead* head) {
  if (address == nullptr || bytes < sizeof *head || bytes > kMostAddressBytes) {
    return "it has a wrong length";
  }
  std::memcpy(head, address, sizeof *head);
  if (head->magic != kMagic) return "it is not one of this transport, or of another version";
  if (head->worker_bytes != bytes - sizeof *head) return "it is cut";
  if (head->checksum != ChecksumOf(address, bytes)) return "it was changed on its way";
  if (head->host_name[sizeof head->host_name - 1] != '\0') return "it is malformed";
  return nullptr;
}

}  // namespace onebit::ucx
