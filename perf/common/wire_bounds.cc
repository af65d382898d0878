// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds up headers, scales and bits message by message.
#include "perf/common/wire_bounds.h"

#include <algorithm>
#include <functional>

namespace onebit::perf {
namespace {

// Elements of the longest chunks: equal padded shares.
uint64_t ChunkLength(const WireShape& shape) {
  const uint64_t share = CeilDivide(shape.count, shape.ranks);
  return CeilDivide(share, shape.chunk_alignment) * shape.chunk_alignment;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// Elements of chunk `chunk`, which may be cut off at the end of the tensor.
Range ChunkOf(const WireShape& shape, size_t chunk) {
  const uint64_t length = ChunkLength(shape);
  return {std::min<uint64_t>(chunk * length, shape.count),
          std::min<uint64_t>((chunk + 1) * length, shape.count)};
}
uint64_t ChunkElements(const WireShape& shape, size_t chunk) {
  return ChunkOf(shape, chunk).size();
}

// The packet of a chunk whose blocks restart at cuts: as many packets one behind another. Segments
// are whole blocks, and signs have no padding, so their number does not matter.
uint64_t CutBytes(const WireShape& shape, Range chunk) {
  uint64_t bytes = 0;
  for (const size_t cut : shape.cuts) {
    if (cut <= chunk.begin || cut >= chunk.end) continue;
    bytes += shape.packet.Bytes(cut - chunk.begin);
    chunk.begin = cut;
  }
  return bytes + shape.packet.Bytes(chunk.size());
}

uint64_t ChunkBytes(const WireShape& shape, size_t chunk) {
  if (!shape.cuts.empty()) return CutBytes(shape, ChunkOf(shape, chunk));
  return shape.packet.SegmentedBytes(ChunkElements(shape, chunk), ChunkLength(shape),
                                     shape.segments);
}

// Treats the packets of all chunks as one: a scale per tensor is then sent once, not once per
// chunk.
uint64_t WholePacketBytes(const WireShape& shape) {
  if (shape.packet.block == 0) return shape.packet.Bytes(shape.count);
  uint64_t scales = 0, bytes = 0;
  for (size_t chunk = 0; chunk < shape.ranks; ++chunk) {
    scales += shape.packet.ScalesOf(ChunkElements(shape, chunk));
    bytes += CutBytes(shape, ChunkOf(shape, chunk));
  }
  return shape.cuts.empty() ? shape.packet.Bytes(scales, shape.count) : bytes;
}

// Counts the bytes of a rank that sends chunk j to rank j, then its own chunk to all others.
// `payload` gives the bytes of chunk j; each of its segments has a header, even that of an empty
// chunk.
template <class Payload>
uint64_t TwoExchanges(const WireShape& shape, size_t rank, const Payload& payload) {
  uint64_t bytes = 0;
  for (size_t peer = 0; peer < shape.ranks; ++peer) {
    if (peer == rank) continue;
    const uint64_t headers = shape.segments * kHeaderBytes;
    bytes += headers + payload(peer);
    bytes += headers + payload(rank);
  }
  return bytes;
}

// With one hop the tensor is one chunk, which every rank sends to all others.
uint64_t OneHopBytes(const WireShape& shape) {
  const uint64_t length = CeilDivide(shape.count, shape.chunk_alignment) * shape.chunk_alignment;
  return (shape.ranks - 1) * (shape.segments * kHeaderBytes +
                              shape.packet.SegmentedBytes(shape.count, length, shape.segments));
}

uint64_t MaxOverRanks(size_t ranks, const std::function<uint64_t(size_t)>& bytes_of) {
  uint64_t most = 0;
  for (size_t rank = 0; rank < ranks; ++rank) most = std::max(most, bytes_of(rank));
  return most;
}

}  // namespace

uint64_t CompressedWireBytes(const WireShape& shape, size_t rank) {
  if (shape.exchanges == 1 && shape.packet.is_sparse()) return OneHopBytes(shape);
  if (shape.exchanges == 1) return (shape.ranks - 1) * (kHeaderBytes + WholePacketBytes(shape));
  return TwoExchanges(shape, rank, [&](size_t chunk) { return ChunkBytes(shape, chunk); });
}

uint64_t DenseWireBytes(const WireShape& shape, size_t element_bytes, size_t rank) {
  return TwoExchanges(shape, rank,
                      [&](size_t chunk) { return ChunkElements(shape, chunk) * element_bytes; });
}

uint64_t MaxCompressedWireBytes(const WireShape& shape) {
  return MaxOverRanks(shape.ranks, [&](size_t rank) { return CompressedWireBytes(shape, rank); });
}

uint64_t MaxDenseWireBytes(const WireShape& shape, size_t element_bytes) {
  return MaxOverRanks(shape.ranks,
                      [&](size_t rank) { return DenseWireBytes(shape, element_bytes, rank); });
}

}  // namespace onebit::perf
