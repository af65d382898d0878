// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/ragged_counts.h"

#include <cstdint>

namespace onebit::perf {
namespace {

// The finaliser of SplitMix64: equal draws with every compiler, unlike the standard distributions.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

template <class CountOfPeer>
Ranges RangesOf(int ranks, const CountOfPeer& count_of) {
  Ranges ranges;
  for (int peer = 0; peer < ranks; ++peer) {
    ranges.counts.push_back(count_of(peer));
    ranges.begins.push_back(ranges.total);
    ranges.total += ranges.counts.back();
  }
  return ranges;
}

}  // namespace

size_t RaggedCount(const Case& row, int from, int to) {
  constexpr uint64_t kOneInSendsNothing = 5;
  const uint64_t most = row.count / row.ragged.row_elements;
  const uint64_t pair = static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to);
  const uint64_t draw = Mix(Mix(row.ragged.seed) ^ pair);
  if (most == 0 || draw % kOneInSendsNothing == 0) return 0;
  return (1 + (draw >> 16) % most) * row.ragged.row_elements;
}

Ranges SentRanges(const Case& row, int rank) {
  return RangesOf(row.ranks, [&](int peer) { return RaggedCount(row, rank, peer); });
}

Ranges ReceivedRanges(const Case& row, int rank) {
  return RangesOf(row.ranks, [&](int peer) { return RaggedCount(row, peer, rank); });
}

}  // namespace onebit::perf
