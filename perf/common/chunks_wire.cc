// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/chunks_wire.h"

namespace onebit::perf {
uint64_t CompressedChunksBytes(const ChunksWire& wire) {
  const uint64_t packets = wire.packet.SegmentedBytes(wire.count, wire.count, wire.segments);
  const uint64_t verdict = wire.packet.has_verdicts ? kHeaderBytes : 0;
  return (wire.ranks - 1) * (wire.segments * kHeaderBytes + packets + verdict);
}

uint64_t DenseChunksBytes(const ChunksWire& wire, size_t element_bytes) {
  return (wire.ranks - 1) * (wire.segments * kHeaderBytes + wire.count * element_bytes);
}

}  // namespace onebit::perf
