// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bytes travel as fp32 elements, which a broadcast copies as they are.
#include "perf/common/rank_exchange.h"

#include <cstring>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

constexpr size_t kWordBytes = 4;

void BroadcastWords(onebitComm_t comm, void* words, size_t count, int root) {
  Check(onebitBroadcast(words, words, count, onebitFloat32, root, comm, nullptr),
        "onebitBroadcast");
}

}  // namespace

void BroadcastBytes(onebitComm_t comm, std::span<std::byte> bytes, int root) {
  const size_t words = bytes.size() / kWordBytes;
  const size_t rest = bytes.size() % kWordBytes;
  const bool is_aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kWordBytes == 0;
  if (rest == 0 && is_aligned) {
    BroadcastWords(comm, bytes.data(), words, root);
    return;
  }
  std::vector<uint32_t> copy(words + 1);
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  BroadcastWords(comm, copy.data(), copy.size(), root);
  if (!bytes.empty()) std::memcpy(bytes.data(), copy.data(), bytes.size());
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
