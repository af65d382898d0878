// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Small things that ranks tell each other besides what is measured, over the same communicator. All
// functions are collective, and throw ToolError with the library's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "onebit/onebit.h"

namespace onebit::perf {

// Copies bytes of rank `root` to all; equal sizes everywhere. The root's are only read.
void BroadcastBytes(onebitComm_t comm, std::span<std::byte> bytes, int root);

int RankOf(onebitComm_t comm);
int CountOf(onebitComm_t comm);

// The record of every rank, by rank, on every rank.
template <class Record>
std::vector<Record> GatherRecords(onebitComm_t comm, const Record& mine) {
  static_assert(std::is_trivially_copyable_v<Record>);
  std::vector<Record> records(static_cast<size_t>(CountOf(comm)));
  records[static_cast<size_t>(RankOf(comm))] = mine;
  for (size_t root = 0; root < records.size(); ++root) {
    BroadcastBytes(comm, std::as_writable_bytes(std::span(&records[root], 1)),
                   static_cast<int>(root));
  }
  return records;
}

// 128 bits that tell buffers apart: two hashes that have nothing in common, of words of 8 bytes.
struct BytesHash {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const BytesHash&) const = default;
};
BytesHash HashBytes(std::span<const std::byte> bytes);

}  // namespace onebit::perf
