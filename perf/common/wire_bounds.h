// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that an allreduce must send, by formula. The computation is independent of the library,
// so sweeps can compare it with what was counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/common/packet_bytes.h"

namespace onebit::perf {

struct WireShape {
  size_t count = 0;
  size_t ranks = 1;
  size_t chunk_alignment = 64;
  PacketRule packet;
  size_t exchanges = 2;           // 1: every rank sends its whole packet to all
  size_t segments = 1;            // pieces of a chunk
  std::vector<size_t> cuts = {};  // of signs: elements at which blocks and bits restart
};

// Returns the bytes that `rank` sends in one compressed allreduce, headers included.
uint64_t CompressedWireBytes(const WireShape& shape, size_t rank);

// The same for a dense allreduce of elements of `element_bytes`; packet and exchanges do not
// matter.
uint64_t DenseWireBytes(const WireShape& shape, size_t element_bytes, size_t rank);

// The largest number over all ranks, which reports show.
uint64_t MaxCompressedWireBytes(const WireShape& shape);
uint64_t MaxDenseWireBytes(const WireShape& shape, size_t element_bytes);

}  // namespace onebit::perf
