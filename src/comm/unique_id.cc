// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/unique_id.h"

#include <algorithm>
#include <cstring>

namespace onebit {
namespace {

// The address as the system has it follows: an id is for ranks on machines of one kind.
struct Layout {
  char magic[8];
  unsigned char key[kKeyBytes];
  unsigned char address[sizeof(sockaddr_in6)];
  unsigned char unused[kUniqueIdBytes - 8 - kKeyBytes - sizeof(sockaddr_in6)];
};
static_assert(sizeof(Layout) == kUniqueIdBytes);

constexpr char kIdMagic[8] = {'o', 'n', 'e', 'b', 'i', 't', 'I', '1'};

}  // namespace

std::array<char, kUniqueIdBytes> EncodeUniqueId(const UniqueId& id) {
  Layout layout = {};
  std::memcpy(layout.magic, kIdMagic, sizeof(kIdMagic));
  std::memcpy(layout.key, id.key.bytes.data(), kKeyBytes);
  std::memcpy(layout.address, id.address.get(), id.address.size());
  std::array<char, kUniqueIdBytes> bytes;
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  return bytes;
}

Result<UniqueId> DecodeUniqueId(std::span<const char, kUniqueIdBytes> bytes) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  sockaddr_in6 address;  // the largest that can be in there, and aligned
  std::memcpy(&address, layout.address, sizeof(address));
  const bool is_known = address.sin6_family == AF_INET || address.sin6_family == AF_INET6;
  if (std::memcmp(layout.magic, kIdMagic, sizeof(kIdMagic)) != 0 || !is_known) {
    return Error(Code::kInvalidArgument,
                 "the unique id is none: hand on all {} bytes that onebitGetUniqueId wrote on one "
                 "rank, unchanged",
                 kUniqueIdBytes);
  }
  UniqueId id = {.address = SocketAddress(reinterpret_cast<const sockaddr*>(&address)), .key = {}};
  std::copy_n(layout.key, kKeyBytes, id.key.bytes.begin());
  return id;
}

}  // namespace onebit
