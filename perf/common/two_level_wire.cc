// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adds up what a rank sends in all exchanges, chunk by chunk.
#include "perf/common/two_level_wire.h"

#include <algorithm>
#include <vector>

#include "perf/common/model_pieces.h"

namespace onebit::perf {
namespace {

using model::HostLayout;

// A message takes one of these paths. Elements that a host has yet to add up are never compressed.
enum class Path { kElementsInside, kInside, kNetwork };

template <class Visit>
void ForEachOfAllReduce(const HostLayout& hosts, const Visit& visit) {
  const size_t rails = hosts.rails();
  for (size_t host = 0; host < hosts.hosts(); ++host) {
    const std::vector<size_t>& here = hosts.ranks_on[host];
    for (size_t local_rank = 0; local_rank < here.size(); ++local_rank) {
      const bool has_rail = local_rank < rails;
      const auto send = [&](Path path, size_t rail, size_t chunk_host) {
        visit(here[local_rank], path, hosts.ChunkOf(rail, chunk_host));
      };
      for (size_t other = 0; other < hosts.hosts(); ++other) {
        for (size_t peer = 0; peer < here.size(); ++peer) {
          if (peer != local_rank && peer < rails) send(Path::kElementsInside, peer, other);
          if (peer != local_rank && has_rail) send(Path::kInside, local_rank, other);
        }
        if (!has_rail || other == host) continue;
        send(Path::kNetwork, local_rank, other);  // what this host has for the other one's chunk
        send(Path::kNetwork, local_rank, host);   // the result of this host's chunk
      }
    }
  }
}

// On each host one rank adds up the elements of a part and sends the rank of the part their sum.
template <class Visit>
void ForEachOfReduceScatter(const HostLayout& hosts, const Visit& visit) {
  for (size_t host = 0; host < hosts.hosts(); ++host) {
    for (size_t part = 0; part < hosts.ranks(); ++part) {
      const size_t partner = hosts.PartnerOn(host, part);
      for (const size_t rank : hosts.ranks_on[host]) {
        if (rank != partner) visit(rank, Path::kElementsInside, part);
      }
      if (partner != part) visit(partner, Path::kNetwork, part);
    }
  }
}

// To each host a part comes once. The rank that gets it passes it on to the others there.
template <class Visit>
void ForEachOfAllGather(const HostLayout& hosts, const Visit& visit) {
  for (size_t host = 0; host < hosts.hosts(); ++host) {
    for (size_t part = 0; part < hosts.ranks(); ++part) {
      const size_t partner = hosts.PartnerOn(host, part);
      if (partner != part) visit(part, Path::kNetwork, part);
      for (const size_t rank : hosts.ranks_on[host]) {
        if (rank != partner) visit(partner, Path::kInside, part);
      }
    }
  }
}

constexpr size_t kHeaderAlone = SIZE_MAX;  // instead of a chunk

// The ranks of a host, and partners, send each other a header where the root sends no chunk.
template <class Visit>
void ForEachHeader(const HostLayout& hosts, size_t root, const Visit& visit) {
  for (size_t a = 0; a < hosts.hosts(); ++a) {
    for (size_t b = 0; b < hosts.hosts(); ++b) {
      for (const size_t from : hosts.ranks_on[a]) {
        for (const size_t to : hosts.ranks_on[b]) {
          const bool is_partner = hosts.PartnerOn(b, from) == to || hosts.PartnerOn(a, to) == from;
          const bool has_chunk = a != b && from == root && hosts.PartnerOn(b, root) == to;
          if (from == to || has_chunk || (a != b && !is_partner)) continue;
          visit(from, a == b ? Path::kInside : Path::kNetwork, kHeaderAlone);
        }
      }
    }
  }
}

// Each host but the root's has a chunk, which its partner of the root sends to those of the others.
template <class Visit>
void ForEachOfBroadcast(const HostLayout& hosts, size_t root, const Visit& visit) {
  ForEachHeader(hosts, root, visit);
  const size_t chunks = hosts.hosts() - 1;
  std::vector<size_t> partners;  // on the hosts after the root's, and at last the root itself
  size_t root_host = 0;
  while (hosts.PartnerOn(root_host, root) != root) ++root_host;
  for (size_t k = 1; k <= hosts.hosts(); ++k) {
    const size_t host = (root_host + k) % hosts.hosts();
    partners.push_back(hosts.PartnerOn(host, root));
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      for (const size_t rank : hosts.ranks_on[host]) {
        if (rank != partners.back()) visit(partners.back(), Path::kInside, chunk);
      }
    }
  }
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    visit(root, Path::kNetwork, chunk);
    for (size_t other = 0; other < chunks; ++other) {
      if (other != chunk) visit(partners[chunk], Path::kNetwork, chunk);
    }
  }
}

// Calls visit(rank, path, chunk) for each chunk that a rank sends to another.
template <class Visit>
void ForEachSend(const TwoLevelWire& wire, const Visit& visit) {
  switch (wire.call) {
    case TwoLevelCall::kAllReduce:
      return ForEachOfAllReduce(wire.hosts, visit);
    case TwoLevelCall::kReduceScatter:
      return ForEachOfReduceScatter(wire.hosts, visit);
    case TwoLevelCall::kAllGather:
      return ForEachOfAllGather(wire.hosts, visit);
    case TwoLevelCall::kBroadcast:
      return ForEachOfBroadcast(wire.hosts, wire.root, visit);
  }
}

bool HasParts(const TwoLevelWire& wire) {
  return wire.call == TwoLevelCall::kReduceScatter || wire.call == TwoLevelCall::kAllGather;
}

// A chunk's bytes in one message or, if it has segments, in as many.
uint64_t ChunkBytes(const TwoLevelWire& wire, Path path, size_t chunk) {
  if (chunk == kHeaderAlone) return kHeaderBytes;
  uint64_t elements = wire.count;
  uint64_t longest = wire.count;
  if (!HasParts(wire)) {
    const bool is_broadcast = wire.call == TwoLevelCall::kBroadcast;
    const size_t chunks = is_broadcast ? wire.hosts.hosts() - 1 : wire.hosts.chunks();
    elements = model::ModelChunk(wire.count, chunks, wire.chunk_alignment, chunk).count;
    longest =
        CeilDivide(CeilDivide(wire.count, chunks), wire.chunk_alignment) * wire.chunk_alignment;
  }
  const uint64_t headers = wire.segments * kHeaderBytes;
  const bool is_packet = wire.packet && path != Path::kElementsInside;
  return headers + (is_packet ? wire.packet->SegmentedBytes(elements, longest, wire.segments)
                              : elements * wire.element_bytes);
}

// Every rank sends a verdict to each other one.
void AddVerdicts(const HostLayout& hosts, std::vector<TwoLevelBytes>* bytes) {
  for (const std::vector<size_t>& here : hosts.ranks_on) {
    for (const size_t rank : here) {
      (*bytes)[rank].inside += (here.size() - 1) * kHeaderBytes;
      (*bytes)[rank].network += (hosts.ranks() - here.size()) * kHeaderBytes;
    }
  }
}

std::vector<TwoLevelBytes> BytesByRank(const TwoLevelWire& wire) {
  std::vector<TwoLevelBytes> bytes(wire.hosts.ranks());
  ForEachSend(wire, [&](size_t rank, Path path, size_t chunk) {
    uint64_t& sum = path == Path::kNetwork ? bytes[rank].network : bytes[rank].inside;
    sum += ChunkBytes(wire, path, chunk);
  });
  if (HasParts(wire) && wire.packet && wire.packet->has_verdicts) AddVerdicts(wire.hosts, &bytes);
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

size_t MaxTwoLevelMessages(const TwoLevelWire& wire) {
  std::vector<size_t> messages(wire.hosts.ranks());
  ForEachSend(wire, [&](size_t rank, Path, size_t chunk) {
    messages[rank] += chunk == kHeaderAlone ? 1 : wire.segments;
  });
  return *std::max_element(messages.begin(), messages.end());
}

size_t SegmentsOfMessages(TwoLevelWire wire, uint64_t most_messages) {
  wire.segments = 1;
  while (MaxTwoLevelMessages(wire) < most_messages) ++wire.segments;
  return wire.segments;
}

}  // namespace onebit::perf
