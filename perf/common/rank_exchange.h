// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exchange of small records between ranks over the communicator that is measured. All functions are
// collective, and throw ToolError with the library's text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "onebit/onebit.h"
#include "perf/common/rank_link.h"

namespace onebit::perf {

// Copies the bytes of rank `root` to all; equal sizes everywhere. The root's are only read.
void BroadcastBytes(onebitComm_t comm, std::span<std::byte> bytes, int root);

int RankOf(onebitComm_t comm);
int CountOf(onebitComm_t comm);

// Returns the record of every rank, by rank, on every rank.
template <class Record>
std::vector<Record> GatherRecords(onebitComm_t comm, const Record& mine) {
  CommLink link(comm);
  return GatherRecords(link, mine);
}

// A 128-bit fingerprint of a buffer: two independent hashes over words of 8 bytes.
struct BytesHash {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const BytesHash&) const = default;
};
BytesHash HashBytes(std::span<const std::byte> bytes);

}  // namespace onebit::perf
