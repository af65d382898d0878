// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The hosts of a communicator's ranks. Those on one host share its links to the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onebit {

// Hosts are numbered in the order of their lowest ranks, ranks on a host in their own order. Rail l
// has the local ranks l of all hosts: there are as many rails as the smallest host has ranks.
// Immutable, and equal on all ranks.
class HostMap {
 public:
  // All ranks on one host.
  explicit HostMap(uint32_t ranks = 1);
  // Ranks with equal names are on one host.
  explicit HostMap(std::span<const std::string> names_by_rank);

  uint32_t ranks() const { return static_cast<uint32_t>(place_of_.size()); }
  uint32_t hosts() const { return static_cast<uint32_t>(first_.size() - 1); }
  uint32_t rails() const { return rails_; }
  uint32_t most_ranks() const { return most_ranks_; }  // of a host
  // True if some, but not all ranks share a host.
  bool has_levels() const { return hosts() > 1 && hosts() < ranks(); }
  bool is_even() const { return rails_ * hosts() == ranks(); }

  uint32_t HostOf(uint32_t rank) const { return place_of_[rank].host; }
  uint32_t LocalRankOf(uint32_t rank) const { return place_of_[rank].local_rank; }
  // The ranks on a host, in their order.
  std::span<const uint32_t> RanksOn(uint32_t host) const {
    return std::span(by_host_).subspan(first_[host], first_[host + 1] - first_[host]);
  }

  // The number of ranks on each host, as factors of sums.
  std::vector<float> Sizes() const;

  // The rank on a host that a rank of another one exchanges messages with: that of its local rank,
  // counted round where the host has fewer. A rank is its own partner on its host.
  uint32_t PartnerOn(uint32_t host, uint32_t rank) const {
    const std::span<const uint32_t> ranks = RanksOn(host);
    return ranks[LocalRankOf(rank) % ranks.size()];
  }

  // 24 bits of which ranks share a host; never 0.
  uint32_t digest() const;

  // "4 hosts of 4 ranks", "3 hosts of 4, 2 and 1 ranks"
  std::string Text() const;

 private:
  struct Place {
    uint32_t host = 0;
    uint32_t local_rank = 0;
  };

  std::vector<Place> place_of_;    // by rank
  std::vector<uint32_t> by_host_;  // ranks in the order of hosts
  std::vector<size_t> first_;      // in by_host_, by host; one more at the end
  uint32_t rails_ = 1;
  uint32_t most_ranks_ = 1;
};

}  // namespace onebit
