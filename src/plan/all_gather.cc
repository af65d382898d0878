// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gather, segment by segment:
//
//   compress              my chunk                                  (dense: nothing)
//   exchange 1            send that packet to all; receive every other chunk's packet
//   decode                write each chunk, my own too, to the output
//   exchange 2            verdicts                                  (dense: none)
//
// In two levels exchange 1 is with the ranks of this host and one partner on each other host. What
// came from there is passed on to all ranks of this host in exchange 2, as it came, and verdicts
// are exchange 3. The result is the same.
//
// With error feedback all ranks hold the same estimate of every chunk. A packet carries the
// compressed difference between a chunk and its estimate, and all ranks, the owner included, add
// the decoded packet to the estimate. The output is the estimate after that. Whatever one call
// loses is part of the next difference.
#include "plan/algorithms.h"
#include "plan/chunk_planner.h"

namespace onebit {
namespace {

class AllGatherPlanner {
 public:
  AllGatherPlanner(const PlanKey& key, uint32_t rank, const HostMap& hosts, size_t segment_elements)
      : planner_(key, rank, hosts.ranks(), segment_elements),
        hosts_(hosts),
        has_levels_(key.has_two_levels),
        host_(hosts.HostOf(rank)) {
    planner_.plan().input_begin = rank * key.count;
    // The estimate is fp32 whatever the output's type.
    if (key.codec.kind == CodecKind::kSign) planner_.plan().scale_type = key.type;
  }

  Plan Build() && {
    for (segment_ = 0; segment_ < planner_.segments(); ++segment_) AddSegment();
    if (planner_.is_dense()) planner_.AddOwnCopy();
    return std::move(planner_).Build();
  }

 private:
  // The rank of this host to which the chunk of a rank on another one comes.
  uint32_t PartnerOf(uint32_t rank) const { return hosts_.PartnerOn(host_, rank); }
  bool IsHere(uint32_t rank) const { return hosts_.HostOf(rank) == host_; }
  bool TakesMine(uint32_t peer) const {
    return !has_levels_ || IsHere(peer) ||
           hosts_.PartnerOn(hosts_.HostOf(peer), planner_.rank()) == peer;
  }

  void AddSegment() {
    Step own = planner_.StepOf(StepKind::kSend, planner_.rank(), segment_);
    uint32_t made = kNoStep;
    if (planner_.is_dense()) {
      own.region = planner_.InputRegion(own);
    } else {
      made = AddCompress(&own);
    }
    for (uint32_t k = 1; k < planner_.ranks(); ++k) {
      const uint32_t peer = planner_.Peer(k);
      own.peer = peer;
      if (TakesMine(peer)) planner_.builder().Add(own, {made});
      AddChunk(peer);
    }
  }

  // Makes the packet that `send` sends. In place, the output of my chunk is the input of its
  // compression.
  uint32_t AddCompress(Step* send) {
    Step compress = planner_.StepOf(StepKind::kCompress, planner_.rank(), segment_);
    compress.region = send->region = planner_.builder().Reserve(compress.shape.bytes());
    compress.packet = send->packet = planner_.builder().NewPackets();
    const uint32_t compressed = planner_.Compute(compress);
    Step decode = planner_.StepOf(StepKind::kDecode, planner_.rank(), segment_);
    decode.peer = planner_.rank();
    decode.region = compress.region;
    planner_.Compute(decode, {compressed});
    return compressed;
  }

  // The chunk of another rank.
  void AddChunk(uint32_t rank) {
    Step receive = planner_.StepOf(StepKind::kReceive, rank, segment_);
    receive.peer = rank;
    const bool comes_from_afar = has_levels_ && !IsHere(rank);
    if (comes_from_afar && PartnerOf(rank) == planner_.rank()) return AddForwards(receive);
    if (comes_from_afar) {
      receive.peer = PartnerOf(rank);
      planner_.PassInsideHost(2, rank, &receive);
    }
    planner_.AddReceive(&receive);
  }

  void AddForwards(Step receive) {
    if (!planner_.is_dense()) receive.packet = planner_.builder().NewPackets();
    const uint32_t received = planner_.AddReceive(&receive);
    Step send = receive;
    send.kind = StepKind::kSend;
    planner_.PassInsideHost(2, receive.chunk, &send);
    for (const uint32_t peer : hosts_.RanksOn(host_)) {
      send.peer = peer;
      if (peer != planner_.rank()) planner_.builder().Add(send, {received});
    }
  }

  ChunkPlanner planner_;
  const HostMap& hosts_;
  const bool has_levels_;
  const uint32_t host_;
  uint32_t segment_ = 0;
};

}  // namespace

Plan PlanAllGather(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                   size_t segment_elements) {
  return AllGatherPlanner(key, rank, hosts, segment_elements).Build();
}

}  // namespace onebit
