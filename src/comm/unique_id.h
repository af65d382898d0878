// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The 128 bytes with the address of the control server and the key that admits ranks.
#pragma once

#include <array>
#include <span>

#include "base/status.h"
#include "comm/secret.h"
#include "comm/socket.h"

namespace onebit {

inline constexpr size_t kUniqueIdBytes = 128;

struct UniqueId {
  SocketAddress address;
  JobKey key;
};

std::array<char, kUniqueIdBytes> EncodeUniqueId(const UniqueId& id);
// Fails if the bytes are no id.
Result<UniqueId> DecodeUniqueId(std::span<const char, kUniqueIdBytes> bytes);

}  // namespace onebit
