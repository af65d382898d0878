// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that an allreduce in two levels must send, by the formula of src/codec/FORMAT.md
// (section 21) and independent of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "perf/common/host_layout.h"
#include "perf/common/packet_bytes.h"

namespace onebit::perf {

struct TwoLevelWire {
  size_t count = 0;
  model::HostLayout hosts;
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

// The largest number of bytes over all ranks, and of messages if chunks are one piece.
uint64_t MaxTwoLevelBytes(const TwoLevelWire& wire);
size_t MaxTwoLevelMessages(const model::HostLayout& hosts);

}  // namespace onebit::perf
