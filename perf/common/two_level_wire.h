// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that a call in two levels must send, by the formulas of src/codec/FORMAT.md (section
// 21) and independent of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "perf/common/host_layout.h"
#include "perf/common/packet_bytes.h"

namespace onebit::perf {

// The collectives that can have two levels.
enum class TwoLevelCall { kAllReduce, kReduceScatter, kAllGather, kBroadcast };

struct TwoLevelWire {
  TwoLevelCall call = TwoLevelCall::kAllReduce;
  size_t count = 0;  // as the call counts elements
  model::HostLayout hosts;
  size_t root = 0;  // of a broadcast
  size_t element_bytes = 4;
  std::optional<PacketRule> packet = {};  // none: dense
  size_t segments = 1;                    // pieces of a chunk
  size_t chunk_alignment = 64;
};

// Bytes with headers.
struct TwoLevelBytes {
  uint64_t inside = 0;   // to ranks on the same host
  uint64_t network = 0;  // to other hosts
  uint64_t all() const { return inside + network; }
};
TwoLevelBytes TwoLevelBytesOf(const TwoLevelWire& wire, size_t rank);

// The largest number of bytes over all ranks, and of messages of a dense call.
uint64_t MaxTwoLevelBytes(const TwoLevelWire& wire);
size_t MaxTwoLevelMessages(const TwoLevelWire& wire);
// The segments of a chunk, if that is the largest number of messages.
size_t SegmentsOfMessages(TwoLevelWire wire, uint64_t most_messages);

}  // namespace onebit::perf
