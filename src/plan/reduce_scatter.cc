// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter, segment by segment:
//
//   for each chunk j      compress my elements of chunk j           (dense: nothing)
//   exchange 1            send that packet to rank j; receive everybody's packet of my chunk
//   reduce                average the packets of my chunk in rank order, straight to the output
//   exchange 2            verdicts                                  (dense: none)
//
// The mean is not compressed again, so there is no server residual.
#include <tuple>

#include "plan/algorithms.h"
#include "plan/chunk_planner.h"

namespace onebit {
namespace {

class ReduceScatterPlanner {
 public:
  explicit ReduceScatterPlanner(ChunkPlanner planner)
      : planner_(std::move(planner)), compress_(planner_.ranks(), kNoStep) {
    planner_.plan().output_begin = planner_.rank() * planner_.key().count;
  }

  Plan Build() && {
    for (segment_ = 0; segment_ < planner_.segments(); ++segment_) {
      if (!planner_.is_dense()) AddCompress();
      AddSends();
      AddReduce();
    }
    return std::move(planner_).Build();
  }

 private:
  // Packets of chunks lie one stride apart.
  void AddCompress() {
    std::tie(packets_, stride_) =
        planner_.builder().ReservePerRank(planner_.PieceBytes(0, segment_));
    first_packet_ = planner_.builder().NewPackets(planner_.ranks());
    if (planner_.key().codec.block ==
        0) {  // one scale for the tensor: its chunks are compressed together
      const Step compress = {.kind = StepKind::kCompress,
                             .chunk = kAllChunks,
                             .elements = {0, planner_.plan().tensor_elements},
                             .packet = first_packet_,
                             .sources = packets_,
                             .stride = stride_};
      compress_.assign(planner_.ranks(), planner_.Compute(compress));
      return;
    }
    // Other ranks' chunks come first, so that their owners can begin.
    for (uint32_t k = 1; k <= planner_.ranks(); ++k) {
      const uint32_t chunk = planner_.Peer(k);
      Step compress = planner_.StepOf(StepKind::kCompress, chunk, segment_);
      compress.region = PacketRegion(chunk);
      compress.packet = first_packet_ + chunk;
      compress_[chunk] = planner_.Compute(compress);
    }
  }

  Region PacketRegion(uint32_t chunk) const {
    return {Space::kPackets, packets_ + chunk * stride_, planner_.PieceBytes(chunk, segment_)};
  }

  void AddSends() {
    for (uint32_t k = 1; k < planner_.ranks(); ++k) {
      const uint32_t peer = planner_.Peer(k);
      Step send = planner_.StepOf(StepKind::kSend, peer, segment_);
      send.peer = peer;
      if (planner_.is_dense()) {
        send.region = planner_.InputRegion(send);
      } else {
        send.region = PacketRegion(peer);
        send.packet = first_packet_ + peer;
      }
      planner_.builder().Add(send, {compress_[peer]});
    }
  }

  // In place, the output is this rank's chunk of the input, which has been compressed by then (or,
  // if dense, is not sent to anybody).
  void AddReduce() {
    const uint32_t rank = planner_.rank();
    const size_t bytes = planner_.PieceBytes(rank, segment_);
    Step reduce = planner_.StepOf(StepKind::kReduce, rank, segment_);
    reduce.region = planner_.OutputRegion(reduce);
    std::tie(reduce.sources, reduce.stride) = planner_.builder().ReservePerRank(bytes);
    if (!planner_.is_dense()) reduce.own_source = PacketRegion(rank).offset;
    if (planner_.key().is_weighted) {
      reduce.mean = planner_.builder().ReserveMean(reduce.elements.count);
    }
    const uint32_t reduced = planner_.Compute(reduce, {compress_[rank]});
    for (uint32_t k = 1; k < planner_.ranks(); ++k) {
      const uint32_t peer = planner_.Peer(k);
      Step receive = planner_.StepOf(StepKind::kReceive, rank, segment_);
      receive.peer = peer;
      receive.region = {Space::kPackets, reduce.sources + peer * reduce.stride, bytes};
      planner_.builder().AddDependency(reduced, planner_.builder().Add(receive));
    }
  }

  ChunkPlanner planner_;
  std::vector<uint32_t> compress_;  // of this segment, by chunk
  uint32_t segment_ = 0;
  size_t packets_ = 0;
  size_t stride_ = 0;
  uint32_t first_packet_ = 0;
};

}  // namespace

Plan PlanReduceScatter(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  return ReduceScatterPlanner(ChunkPlanner(key, rank, ranks, segment_elements)).Build();
}

}  // namespace onebit
