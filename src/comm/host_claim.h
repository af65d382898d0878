// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks say where they are when they join, and all make the same map of hosts of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "topology/host_map.h"

namespace onebit {

struct HostClaim {
  std::string word;          // ONEBIT_HOST; empty: none
  std::string machine = {};  // Placement::machine; empty: all ranks are in one process
};

// Ranks with equal words share a host. Where no rank has one, `host_ranks` (ONEBIT_HOST_RANKS)
// successive ranks do or, if that is 0, those on one machine. Fails with kMismatch if only some
// ranks have a word, which says nothing about where the others are.
Result<HostMap> MapHosts(std::span<const HostClaim> claims_by_rank, uint64_t host_ranks);

}  // namespace onebit
