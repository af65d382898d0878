// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Broadcast in two levels. On each other host the root has a partner, and the buffer is cut into a
// chunk for each of these hosts. Segment by segment:
//
//   exchange 1            the root sends each partner the chunk of its host
//   exchange 2            partners of the root send their chunks to each other
//   exchange 3            inside a host: the root, or its partner, sends all chunks to all
//
// A chunk leaves each host once. In exchange 1 the ranks of a host, and partners, also send each
// other headers without payload. Otherwise ranks with different roots could wait for each other.
#include <vector>

#include "plan/algorithms.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

class TwoLevelBroadcastPlanner {
 public:
  TwoLevelBroadcastPlanner(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                           const Partition& partition)
      : builder_(key, rank, hosts.ranks(), partition),
        key_(key),
        rank_(rank),
        hosts_(hosts),
        host_(hosts.HostOf(rank)),
        root_host_(hosts.HostOf(key.root)) {}

  Plan Build() && {
    if (rank_ == key_.root) {
      const ElementRange all{0, key_.count};
      builder_.Add({.kind = StepKind::kCopy,
                    .elements = all,
                    .region = DenseRegion(Space::kInput, all, key_.type)});
    }
    AddHeaders();
    for (segment_ = 0; segment_ < builder_.plan().segments(); ++segment_) AddSegment();
    return std::move(builder_).Build();
  }

 private:
  uint32_t Leader(uint32_t host) const { return hosts_.PartnerOn(host, key_.root); }
  // The chunk of a host: they follow each other in the order of hosts after the root's.
  uint32_t ChunkOf(uint32_t host) const {
    return (host + hosts_.hosts() - root_host_ - 1) % hosts_.hosts();
  }
  uint32_t chunks() const { return hosts_.hosts() - 1; }

  bool ArePartners(uint32_t a, uint32_t b) const {
    return hosts_.PartnerOn(hosts_.HostOf(b), a) == b || hosts_.PartnerOn(hosts_.HostOf(a), b) == a;
  }

  // Adds the messages of exchange 1 that carry nothing.
  void AddHeaders() {
    for (uint32_t k = 1; k < hosts_.ranks(); ++k) {
      const uint32_t peer = (rank_ + k) % hosts_.ranks();
      const bool is_here = hosts_.HostOf(peer) == host_;
      if (!is_here && !ArePartners(rank_, peer)) continue;
      if (!TakesChunk(peer, rank_)) builder_.Add({.kind = StepKind::kSend, .peer = peer});
      if (!TakesChunk(rank_, peer)) builder_.Add({.kind = StepKind::kReceive, .peer = peer});
    }
  }
  // True if `from` sends `rank` a chunk in exchange 1.
  bool TakesChunk(uint32_t rank, uint32_t from) const {
    const uint32_t host = hosts_.HostOf(rank);
    return from == key_.root && host != root_host_ && Leader(host) == rank;
  }

  void AddSegment() {
    chunk_steps_.assign(chunks(), kNoStep);
    if (Leader(host_) != rank_) return AddForwarded();
    const bool is_root = rank_ == key_.root;
    if (is_root) {
      AddRootsSends();
    } else {
      AddPartnersMessages();
    }
    AddForwards(is_root ? Space::kInput : Space::kOutput);
  }

  void AddRootsSends() {
    for (uint32_t k = 1; k < hosts_.hosts(); ++k) {
      const uint32_t host = (host_ + k) % hosts_.hosts();
      Add(StepKind::kSend, 1, Leader(host), ChunkOf(host), Space::kInput);
    }
  }

  void AddPartnersMessages() {
    const uint32_t own = ChunkOf(host_);
    chunk_steps_[own] = Add(StepKind::kReceive, 1, key_.root, own, Space::kOutput);
    for (uint32_t k = 1; k < hosts_.hosts(); ++k) {
      const uint32_t host = (host_ + k) % hosts_.hosts();
      if (host == root_host_) continue;
      const uint32_t chunk = ChunkOf(host);
      Add(StepKind::kSend, 2, Leader(host), own, Space::kOutput);
      chunk_steps_[chunk] = Add(StepKind::kReceive, 2, Leader(host), chunk, Space::kOutput);
    }
  }

  void AddForwards(Space space) {
    for (uint32_t chunk = 0; chunk < chunks(); ++chunk) {
      for (const uint32_t peer : hosts_.RanksOn(host_)) {
        if (peer != rank_) Add(StepKind::kSend, 3, peer, chunk, space);
      }
    }
  }

  void AddForwarded() {
    for (uint32_t chunk = 0; chunk < chunks(); ++chunk) {
      Add(StepKind::kReceive, 3, Leader(host_), chunk, Space::kOutput);
    }
  }

  // Adds a message with a chunk. A partner sends it once it has received it.
  uint32_t Add(StepKind kind, uint8_t exchange, uint32_t peer, uint32_t chunk, Space space) {
    const ElementRange elements = builder_.plan().partition.Segment(chunk, segment_);
    const uint32_t number = exchange == 3 ? chunk * builder_.plan().segments() : 0;
    return builder_.Add({.kind = kind,
                         .exchange = exchange,
                         .segment = static_cast<uint16_t>(number + segment_),
                         .chunk = chunk,
                         .peer = peer,
                         .elements = elements,
                         .region = DenseRegion(space, elements, key_.type)},
                        {kind == StepKind::kSend ? chunk_steps_[chunk] : kNoStep});
  }

  PlanBuilder builder_;
  const PlanKey& key_;
  const uint32_t rank_;
  const HostMap& hosts_;
  const uint32_t host_;
  const uint32_t root_host_;
  uint32_t segment_ = 0;
  std::vector<uint32_t> chunk_steps_;  // those that receive the chunks of this segment
};

}  // namespace

Plan PlanBroadcastTwoLevels(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                            size_t segment_elements) {
  constexpr size_t kAlignment = kernels::kBlockMultiple;
  const size_t chunks = hosts.hosts() - 1;
  // The header numbers segments of all chunks with 16 bits.
  if (chunks * Partition::kMaxSegments > UINT16_MAX) segment_elements = 0;
  const Partition partition(key.count, chunks, kAlignment, kAlignment, segment_elements);
  return TwoLevelBroadcastPlanner(key, rank, hosts, partition).Build();
}

}  // namespace onebit
