// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/common/chunks_wire.h"

namespace onebit::perf {
namespace {

constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kScaleBytes = 4;

}  // namespace

uint64_t CompressedChunksBytes(const ChunksWire& wire) {
  const uint64_t blocks =
      wire.block == 0 ? (wire.count == 0 ? 0 : 1) : (wire.count + wire.block - 1) / wire.block;
  const uint64_t packet = kScaleBytes * blocks + (wire.count + 7) / 8;
  return (wire.ranks - 1) * (wire.segments * kHeaderBytes + packet + kHeaderBytes);
}

uint64_t DenseChunksBytes(const ChunksWire& wire, size_t element_bytes) {
  return (wire.ranks - 1) * (wire.segments * kHeaderBytes + wire.count * element_bytes);
}

}  // namespace onebit::perf
