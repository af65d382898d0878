// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Identifies the host of a rank, for deciding who may share memory.
#pragma once

#include <cstdint>

namespace onebit::plugin {

// Equal for two processes that can share memory, and different for two that should not even if they
// could: containers and network namespaces of one machine count as separate hosts.
struct HostIdentity {
  uint64_t words[2];
  bool operator==(const HostIdentity&) const = default;
};

HostIdentity IdentityOfThisHost();

// Equal for processes that share processors, even if they count as separate hosts.
uint64_t IdentityOfThisMachine();

// A well-mixed 64-bit hash of text or memory; not for secrets.
uint64_t HashOf(const void* bytes, uint64_t byte_count, uint64_t seed);

}  // namespace onebit::plugin
