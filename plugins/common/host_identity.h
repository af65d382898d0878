// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which host a rank is on, as far as sharing memory goes.
#pragma once

#include <cstdint>

namespace onebit::plugin {

// Equal for two processes that can share memory, and different for two that should not even if they
// could: containers and network namespaces of one machine count as hosts of their own.
struct HostIdentity {
  uint64_t words[2];
  bool operator==(const HostIdentity&) const = default;
};

HostIdentity IdentityOfThisHost();

// Equal for processes that share processors, however many hosts they seem to be on.
uint64_t IdentityOfThisMachine();

// 64 bits of a text or of memory, well mixed; not for secrets.
uint64_t HashOf(const void* bytes, uint64_t byte_count, uint64_t seed);

}  // namespace onebit::plugin
