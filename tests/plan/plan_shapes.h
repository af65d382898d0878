// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks of a call, for every kind of call.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "plan/algorithms.h"

namespace onebit {

struct Shape {
  PlanKey key;
  uint32_t ranks;
  size_t segment_elements;
  HostMap hosts = HostMap(ranks);
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

using Plans = std::vector<Plan>;  // of all ranks

// Counts for every pair, some of them 0, with gaps between the ranges.
class Pairs {
 public:
  static size_t Count(uint32_t from, uint32_t to) { return (from * 37 + to * 101) % 5 * 33; }

  Pairs(uint32_t rank, uint32_t ranks) {
    for (uint32_t peer = 0; peer < ranks; ++peer) {
      counts_[0].push_back(Count(rank, peer));
      counts_[1].push_back(Count(peer, rank));
      for (int side = 0; side < 2; ++side) {
        begins_[side].push_back(elements_[side]);
        elements_[side] += counts_[side].back() + peer;
      }
    }
  }
  PairCounts counts() const {
    return {counts_[0].data(), begins_[0].data(), counts_[1].data(), begins_[1].data()};
  }
  size_t elements(int side) const { return elements_[side]; }

 private:
  std::vector<size_t> counts_[2], begins_[2];  // sent, received
  size_t elements_[2] = {};
};

// Elements of the caller's buffers.
size_t InputElements(const Plan& plan);
size_t OutputElements(const Plan& plan);

// True if the tensor has one part of the call's count per rank.
bool HasChunks(const PlanKey& key);

// Calls `check` with the plans of every kind of call on 1 to 9 ranks, and on hosts of several
// ranks.
void ForEachShape(const std::function<void(const Shape&, const Plans&)>& check);

}  // namespace onebit
