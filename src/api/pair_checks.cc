// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/pair_checks.h"

#include <algorithm>

namespace onebit {
namespace {

// One side of the call: the ranges of one buffer.
struct Side {
  const char* buffer_name;
  const char* counts_name;
  const char* begins_name;
  const void* buffer;
  const size_t* counts;
  const size_t* begins;
};

// The bytes of a buffer between its first and its last range.
struct Extent {
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;

  void Include(uintptr_t range_begin, uintptr_t range_end) {
    if (range_begin == range_end) return;
    begin = std::min(begin, range_begin);
    end = std::max(end, range_end);
  }
  bool Overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};

Extent RangeOf(const Side& side, size_t peer, size_t element_bytes) {
  Extent range;
  const uintptr_t begin =
      reinterpret_cast<uintptr_t>(side.buffer) + side.begins[peer] * element_bytes;
  range.Include(begin, begin + side.counts[peer] * element_bytes);
  return range;
}

Result<Extent> CheckSide(const Side& side, size_t ranks, size_t element_bytes) {
  if (side.counts == nullptr) {
    return Error(Code::kInvalidArgument, "{} is NULL, but must have a count for every rank",
                 side.counts_name);
  }
  if (side.begins == nullptr) {
    return Error(Code::kInvalidArgument, "{} is NULL, but must have a displacement for every rank",
                 side.begins_name);
  }
  const size_t most = SIZE_MAX / 4 / element_bytes / ranks;  // so that no sum overflows
  Extent extent;
  for (size_t peer = 0; peer < ranks; ++peer) {
    if (side.counts[peer] > most || side.begins[peer] > SIZE_MAX / 4 / element_bytes) {
      return Error(Code::kInvalidArgument,
                   "{}[{}] is {} and {}[{}] is {}: more than memory can hold", side.counts_name,
                   peer, side.counts[peer], side.begins_name, peer, side.begins[peer]);
    }
    if (side.counts[peer] == 0) continue;
    if (side.buffer == nullptr) {
      return Error(Code::kInvalidArgument, "{} is NULL, but {}[{}] is {}", side.buffer_name,
                   side.counts_name, peer, side.counts[peer]);
    }
    const Extent range = RangeOf(side, peer, element_bytes);
    extent.Include(range.begin, range.end);
  }
  if (extent.end != 0 && reinterpret_cast<uintptr_t>(side.buffer) % element_bytes != 0) {
    return Error(Code::kInvalidArgument, "buffer {} is not aligned to its element size of {} bytes",
                 side.buffer, element_bytes);
  }
  return extent;
}

}  // namespace

Status CheckPairs(const Comm& comm, const CallRequest& request) {
  const PairCounts& pairs = *request.pairs;
  const auto ranks = static_cast<size_t>(comm.ranks());
  const size_t element_bytes = kernels::BytesOf(request.type);
  const Side sent{"sendbuff",       "sendcounts",      "sdispls",
                  request.sendbuff, pairs.send_counts, pairs.send_begins};
  const Side received{"recvbuff",       "recvcounts",         "rdispls",
                      request.recvbuff, pairs.receive_counts, pairs.receive_begins};
  ONEBIT_ASSIGN_OR_RETURN(const Extent sent_extent, CheckSide(sent, ranks, element_bytes));
  ONEBIT_ASSIGN_OR_RETURN(const Extent received_extent, CheckSide(received, ranks, element_bytes));
  const auto rank = static_cast<size_t>(comm.rank());
  if (pairs.send_counts[rank] != pairs.receive_counts[rank]) {
    return Error(Code::kInvalidArgument,
                 "rank {} sends itself {} elements (sendcounts[{}]), but receives {} from itself "
                 "(recvcounts[{}])",
                 rank, pairs.send_counts[rank], rank, pairs.receive_counts[rank], rank);
  }
  if (!sent_extent.Overlaps(received_extent)) return OkStatus();
  // One array serves both directions, one after the other.
  for (size_t to = 0; to < ranks; ++to) {
    const Extent range = RangeOf(sent, to, element_bytes);
    for (size_t from = 0; from < ranks; ++from) {
      if (!range.Overlaps(RangeOf(received, from, element_bytes))) continue;
      return Error(Code::kInvalidArgument,
                   "the data sent to rank {} and the data received from rank {} overlap: an "
                   "all-to-all cannot work in place; use two buffers",
                   to, from);
    }
  }
  return OkStatus();
}

}  // namespace onebit
