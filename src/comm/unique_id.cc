// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/unique_id.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace onebit {
namespace {

// The addresses are as the system has them: an id is for ranks on machines of one kind.
struct Layout {
  char magic[8];
  unsigned char key[kKeyBytes];
  unsigned char address[sizeof(sockaddr_in6)];
  unsigned char more_count;  // 0 in ids of earlier builds
  unsigned char unused[3];
  in_addr more[kMostAddresses - 1];
};
static_assert(sizeof(Layout) == kUniqueIdBytes);

in_addr HostOf(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}

constexpr char kIdMagic[8] = {'o', 'n', 'e', 'b', 'i', 't', 'I', '1'};

}  // namespace

UniqueId UniqueId::AtTurn(size_t turn) const {
  UniqueId id = *this;
  const size_t number = turn % (1 + more_addresses.size());
  if (number != 0) std::swap(id.address, id.more_addresses[number - 1]);
  return id;
}

std::array<char, kUniqueIdBytes> EncodeUniqueId(const UniqueId& id) {
  Layout layout = {};
  std::memcpy(layout.magic, kIdMagic, sizeof(kIdMagic));
  std::memcpy(layout.key, id.key.bytes.data(), kKeyBytes);
  std::memcpy(layout.address, id.address.get(), id.address.size());
  const size_t most = id.address.family() == AF_INET ? std::size(layout.more) : 0;
  layout.more_count = static_cast<unsigned char>(std::min(id.more_addresses.size(), most));
  for (size_t i = 0; i < layout.more_count; ++i) layout.more[i] = HostOf(id.more_addresses[i]);
  std::array<char, kUniqueIdBytes> bytes;
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  return bytes;
}

Result<UniqueId> DecodeUniqueId(std::span<const char, kUniqueIdBytes> bytes) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  sockaddr_in6 address;  // the largest that can be in there, and aligned
  std::memcpy(&address, layout.address, sizeof(address));
  const bool is_known =
      address.sin6_family == AF_INET || (address.sin6_family == AF_INET6 && layout.more_count == 0);
  const bool is_short = layout.more_count <= std::size(layout.more);
  if (std::memcmp(layout.magic, kIdMagic, sizeof(kIdMagic)) != 0 || !is_known || !is_short) {
    return Error(Code::kInvalidArgument,
                 "not a onebit unique id: pass all {} bytes that onebitGetUniqueId wrote on one "
                 "rank, unchanged",
                 kUniqueIdBytes);
  }
  UniqueId id = {.address = SocketAddress(reinterpret_cast<const sockaddr*>(&address)), .key = {}};
  std::copy_n(layout.key, kKeyBytes, id.key.bytes.begin());
  sockaddr_in other = {};
  std::memcpy(&other, layout.address, sizeof(other));
  for (size_t i = 0; i < layout.more_count; ++i) {
    other.sin_addr = layout.more[i];
    id.more_addresses.emplace_back(reinterpret_cast<const sockaddr*>(&other));
  }
  return id;
}

}  // namespace onebit
