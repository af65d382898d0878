// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/rank_exchange.h"

#include <cstring>

#include "perf/common/tool_error.h"

namespace onebit::perf {

void BroadcastBytes(onebitComm_t comm, std::span<std::byte> bytes, int root) {
  Check(onebitBroadcast(bytes.data(), bytes.data(), bytes.size(), onebitUint8, root, comm, nullptr),
        "onebitBroadcast");
}

int RankOf(onebitComm_t comm) {
  int rank = 0;
  Check(onebitCommUserRank(comm, &rank), "onebitCommUserRank");
  return rank;
}

int CountOf(onebitComm_t comm) {
  int count = 0;
  Check(onebitCommCount(comm, &count), "onebitCommCount");
  return count;
}

BytesHash HashBytes(std::span<const std::byte> bytes) {
  // Two chains of multiplications with different constants. A product carries nothing downwards, so
  // each is folded; otherwise the highest bits of all words would never mix.
  BytesHash hash = {0xcbf29ce484222325, bytes.size()};
  const auto add = [&hash](uint64_t word) {
    hash.first = (hash.first ^ word) * 0xbf58476d1ce4e5b9;
    hash.first ^= hash.first >> 32;
    hash.second = (hash.second + word) * 0x9e3779b97f4a7c15;
    hash.second ^= hash.second >> 29;
  };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    add(word);
  }
  uint64_t last = 0;
  if (at < bytes.size()) std::memcpy(&last, bytes.data() + at, bytes.size() - at);
  add(last);
  return hash;
}

}  // namespace onebit::perf
