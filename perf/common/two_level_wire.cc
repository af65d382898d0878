// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds up what a rank sends in each of the four exchanges, chunk by chunk.
#include "perf/common/two_level_wire.h"

#include "perf/common/model_pieces.h"

namespace onebit::perf {
namespace {

using model::HostLayout;

// Calls visit(rank, exchange, chunk) for each chunk that a rank sends to another.
template <class Visit>
void ForEachSend(const HostLayout& hosts, const Visit& visit) {
  const size_t rails = hosts.rails();
  for (size_t host = 0; host < hosts.hosts(); ++host) {
    const std::vector<size_t>& here = hosts.ranks_on[host];
    for (size_t local_rank = 0; local_rank < here.size(); ++local_rank) {
      const bool has_rail = local_rank < rails;
      const auto send = [&](int exchange, size_t rail, size_t chunk_host) {
        visit(here[local_rank], exchange, hosts.ChunkOf(rail, chunk_host));
      };
      for (size_t other = 0; other < hosts.hosts(); ++other) {
        for (size_t peer = 0; peer < here.size(); ++peer) {
          if (peer != local_rank && peer < rails) send(1, peer, other);
          if (peer != local_rank && has_rail) send(4, local_rank, other);
        }
        if (!has_rail || other == host) continue;
        send(2, local_rank, other);
        send(3, local_rank, host);
      }
    }
  }
}

// A chunk's bytes in one exchange: its segments, each with a header.
uint64_t ChunkBytes(const TwoLevelWire& wire, int exchange, size_t chunk) {
  const size_t chunks = wire.hosts.chunks();
  const uint64_t elements =
      model::ModelChunk(wire.count, chunks, wire.chunk_alignment, chunk).count;
  const uint64_t headers = wire.segments * kHeaderBytes;
  if (exchange == 1 || !wire.packet) return headers + elements * wire.element_bytes;
  const uint64_t share = CeilDivide(wire.count, chunks);
  const uint64_t longest = CeilDivide(share, wire.chunk_alignment) * wire.chunk_alignment;
  return headers + wire.packet->SegmentedBytes(elements, longest, wire.segments);
}

std::vector<TwoLevelBytes> BytesByRank(const TwoLevelWire& wire) {
  std::vector<TwoLevelBytes> bytes(wire.hosts.ranks());
  ForEachSend(wire.hosts, [&](size_t rank, int exchange, size_t chunk) {
    const bool is_inside = exchange == 1 || exchange == 4;
    (is_inside ? bytes[rank].inside : bytes[rank].network) += ChunkBytes(wire, exchange, chunk);
  });
  return bytes;
}

}  // namespace

TwoLevelBytes TwoLevelBytesOf(const TwoLevelWire& wire, size_t rank) {
  return BytesByRank(wire)[rank];
}

uint64_t MaxTwoLevelBytes(const TwoLevelWire& wire) {
  uint64_t most = 0;
  for (const TwoLevelBytes& bytes : BytesByRank(wire)) most = std::max(most, bytes.all());
  return most;
}

size_t MaxTwoLevelMessages(const HostLayout& hosts) {
  std::vector<size_t> messages(hosts.ranks());
  ForEachSend(hosts, [&](size_t rank, int, size_t) { ++messages[rank]; });
  return *std::max_element(messages.begin(), messages.end());
}

}  // namespace onebit::perf
