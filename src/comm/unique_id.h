// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The 128 bytes with the addresses of the control server and the key that admits ranks.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/secret.h"
#include "comm/socket.h"

namespace onebit {

inline constexpr size_t kUniqueIdBytes = 128;

// The most addresses that fit into an id. If the first is of IPv6, it is the only one.
inline constexpr size_t kMostAddresses = 15;

struct UniqueId {
  SocketAddress address;
  JobKey key;
  // Other addresses of the same server, with the same port: others may reach it by some of them
  // only.
  std::vector<SocketAddress> more_addresses = {};

  // The same with another of its addresses as the first, for those who try one after the other.
  UniqueId AtTurn(size_t turn) const;
};

std::array<char, kUniqueIdBytes> EncodeUniqueId(const UniqueId& id);
// Fails if the bytes are no id.
Result<UniqueId> DecodeUniqueId(std::span<const char, kUniqueIdBytes> bytes);

}  // namespace onebit
