// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The 128 bytes that tell a rank where the others meet, and prove that it belongs to them.
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
// An error says that the bytes are no id.
Result<UniqueId> DecodeUniqueId(std::span<const char, kUniqueIdBytes> bytes);

}  // namespace onebit
