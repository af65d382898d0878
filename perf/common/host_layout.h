// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hosts, rails and chunks as src/codec/FORMAT.md (section 21) numbers them, independent of the
// library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace onebit::model {

// Without hosts, calls have one level.
struct HostLayout {
  std::vector<std::vector<size_t>> ranks_on;  // by host, in the order of local ranks
  std::vector<size_t> local_rank_of;          // by rank

  HostLayout() = default;
  // The host of each rank, numbered from 0 on.
  explicit HostLayout(std::span<const uint32_t> host_of_rank) {
    for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
      ranks_on.resize(std::max<size_t>(ranks_on.size(), host_of_rank[rank] + 1));
      std::vector<size_t>& here = ranks_on[host_of_rank[rank]];
      local_rank_of.push_back(here.size());
      here.push_back(rank);
    }
  }

  bool empty() const { return ranks_on.empty(); }
  size_t hosts() const { return ranks_on.size(); }
  size_t ranks() const { return local_rank_of.size(); }
  size_t rails() const {
    size_t rails = SIZE_MAX;
    for (const auto& here : ranks_on) rails = std::min(rails, here.size());
    return rails;
  }
  bool is_even() const { return rails() * hosts() == ranks(); }

  size_t chunks() const { return rails() * hosts(); }
  size_t ChunkOf(size_t rail, size_t host) const { return rail * hosts() + host; }
  // The rank that compresses what `host` has for a chunk.
  size_t WorkerOf(size_t host, size_t chunk) const { return ranks_on[host][chunk / hosts()]; }

  // The rank of `host` that exchanges messages with `rank`: itself on its own host.
  size_t PartnerOn(size_t host, size_t rank) const {
    return ranks_on[host][local_rank_of[rank] % ranks_on[host].size()];
  }
  // The ranks whose mean a worker compresses: a rank is one, and in two levels a host.
  size_t RanksOfWorker(size_t worker) const { return empty() ? 1 : ranks_on[worker].size(); }
};

}  // namespace onebit::model
