// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scatter - reduce - all-gather, segment by segment:
//
//   for each chunk j      compress my elements of chunk j           (dense: nothing)
//   exchange 1            send that packet to rank j; receive everybody's packet of my chunk
//   reduce                average the packets of my chunk in rank order, compress the mean
//   exchange 2            send that packet to all; receive every other chunk's packet
//   decode                write each chunk to the output            (dense: received in place)
//
// Segments share only their order on the wire, so the executor overlaps them.
#include <algorithm>
#include <tuple>

#include "plan/algorithms.h"
#include "plan/plan_builder.h"
#include "plan/runs.h"

namespace onebit {
namespace {

// Adds the steps of one segment at a time. Members hold what its steps share.
class SraPlanner {
 public:
  SraPlanner(const PlanKey& key, uint32_t rank, uint32_t ranks, const Partition& partition)
      : builder_(key, rank, ranks, partition),
        key_(key),
        partition_(partition),
        rank_(rank),
        ranks_(ranks),
        is_dense_(key.codec.is_dense()),
        compress_(ranks),
        scatter_(ranks) {
    builder_.plan().compressed = {0, key.count};
    builder_.plan().served = partition.Chunk(rank);
  }

  void AddSegment(uint32_t segment) {
    segment_ = segment;
    AddScatter();
    AddReduce();
    AddGather();
  }

  Plan Build() && { return std::move(builder_).Build(); }

 private:
  ElementRange Elements(uint32_t chunk) const { return partition_.Segment(chunk, segment_); }
  // The packet of a rank in exchange 1 has one format, the packet of the mean another.
  PacketShape Shape(uint32_t chunk, const PacketFormat& format) const {
    return is_dense_ ? PacketShape{} : ShapeOf(key_, Elements(chunk), format);
  }
  // Bytes of a peer's piece of this rank's chunk, or of a chunk's packet.
  size_t PieceBytes(uint32_t chunk) const {
    return is_dense_ ? Elements(chunk).count * kernels::BytesOf(key_.type)
                     : Shape(chunk, key_.packet_format()).bytes();
  }
  Step StepOf(StepKind kind, uint32_t chunk, const PacketFormat& format) const {
    return {.kind = kind,
            .segment = static_cast<uint16_t>(segment_),
            .chunk = chunk,
            .elements = Elements(chunk),
            .shape = Shape(chunk, format)};
  }
  Step ScatterStep(StepKind kind, uint32_t chunk) const {
    return StepOf(kind, chunk, key_.packet_format());
  }
  Step MeanStep(StepKind kind, uint32_t chunk) const {
    return StepOf(kind, chunk, key_.mean_format());
  }

  // Other ranks' chunks come first, so that their owners can begin. Starting after this rank
  // spreads the load.
  void AddScatter() {
    compress_.assign(ranks_, kNoStep);
    scatter_.assign(ranks_, kNoStep);
    if (!is_dense_) AddCompress();
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      Step send = ScatterStep(StepKind::kSend, peer);
      send.peer = peer;
      if (is_dense_) {
        send.region = DenseRegion(Space::kInput, send.elements, key_.type);
      } else {
        send.region = PacketRegion(peer);
        send.packet = first_packet_ + peer;
      }
      scatter_[peer] = builder_.Add(send, {compress_[peer]});
    }
  }

  // Packets of chunks lie one stride apart. Without cuts, that of chunk 0 is the longest.
  void AddCompress() {
    size_t longest = 0;
    for (uint32_t chunk = 0; chunk < ranks_; ++chunk)
      longest = std::max(longest, PieceBytes(chunk));
    std::tie(packets_, stride_) = builder_.ReservePerRank(longest);
    first_packet_ = builder_.NewPackets(ranks_);
    if (key_.codec.block == 0) {  // one scale for the tensor: its chunks are compressed together
      const Step compress = {.kind = StepKind::kCompress,
                             .chunk = kAllChunks,
                             .elements = {0, key_.count},
                             .packet = first_packet_,
                             .sources = packets_,
                             .stride = stride_};
      compress_.assign(ranks_, builder_.Add(compress));
      return;
    }
    for (uint32_t k = 1; k <= ranks_; ++k) {
      const uint32_t chunk = (rank_ + k) % ranks_;
      Step compress = ScatterStep(StepKind::kCompress, chunk);
      compress.region = PacketRegion(chunk);
      compress.packet = first_packet_ + chunk;
      compress_[chunk] = builder_.Add(compress);
    }
  }

  Region PacketRegion(uint32_t chunk) const {
    return {Space::kPackets, packets_ + chunk * stride_, PieceBytes(chunk)};
  }

  void AddReduce() {
    Step reduce = MeanStep(StepKind::kReduce, rank_);
    std::tie(reduce.sources, reduce.stride) = builder_.ReservePerRank(PieceBytes(rank_));
    if (is_dense_) {
      reduce.region = DenseRegion(Space::kOutput, reduce.elements, key_.type);
    } else {
      reduce.own_source = PacketRegion(rank_).offset;
      reduce.region = builder_.Reserve(reduce.shape.bytes());
      reduce.packet = builder_.NewPackets();
      if (key_.is_weighted) reduce.mean = builder_.ReserveMean(reduce.elements.count);
    }
    reduce_ = builder_.Add(reduce, {compress_[rank_]});
    reduce_region_ = reduce.region;
    reduce_packet_ = reduce.packet;
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      Step receive = ScatterStep(StepKind::kReceive, rank_);
      receive.peer = peer;
      receive.region = {Space::kPackets, reduce.sources + peer * reduce.stride, PieceBytes(rank_)};
      builder_.AddDependency(reduce_, builder_.Add(receive));
    }
  }

  void AddGather() {
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      Step send = MeanStep(StepKind::kSend, rank_);
      send.exchange = 2;
      send.peer = peer;
      send.region = reduce_region_;
      send.packet = reduce_packet_;
      builder_.Add(send, {reduce_});

      Step receive = MeanStep(StepKind::kReceive, peer);
      receive.exchange = 2;
      receive.peer = peer;
      if (is_dense_) {
        // In place, this overwrites data sent in exchange 1, so that send must have completed.
        receive.region = DenseRegion(Space::kOutput, receive.elements, key_.type);
        builder_.Add(receive, {scatter_[peer]});
      } else {
        receive.region = builder_.Reserve(receive.shape.bytes());
        AddDecode(peer, receive.region, builder_.Add(receive));
      }
    }
    if (!is_dense_) AddDecode(rank_, reduce_region_, reduce_);
  }

  void AddDecode(uint32_t chunk, Region packet, uint32_t after) {
    Step decode = MeanStep(StepKind::kDecode, chunk);
    decode.region = packet;
    // In place, the output of a chunk is the input of its compression.
    builder_.Add(decode, {after, compress_[chunk]});
  }

  PlanBuilder builder_;
  const PlanKey& key_;
  const Partition& partition_;
  const uint32_t rank_;
  const uint32_t ranks_;
  const bool is_dense_;
  uint32_t segment_ = 0;
  std::vector<uint32_t> compress_;  // of this segment, by chunk
  std::vector<uint32_t> scatter_;   // sends of exchange 1, by peer
  size_t packets_ = 0;
  size_t stride_ = 0;
  uint32_t first_packet_ = 0;
  uint32_t reduce_ = kNoStep;
  Region reduce_region_;
  uint32_t reduce_packet_ = kNoPacket;
};

}  // namespace

Plan PlanAllReduceSra(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  const bool is_dense = key.codec.is_dense();
  // A tensor-wide scale is known only after the last element, which rules out segments. Where
  // elements have no block, segment_unit() says how segments are cut.
  const bool has_segments = is_dense || key.codec.block != 0;
  if (is_dense) segment_elements = DenseSegmentElements(segment_elements);
  const Partition partition(key.count, ranks, key.chunk_alignment, key.codec.segment_unit(),
                            has_segments ? segment_elements : 0, key.cuts.get());
  SraPlanner planner(key, rank, ranks, partition);
  for (uint32_t segment = 0; segment < partition.segments(); ++segment) planner.AddSegment(segment);
  return std::move(planner).Build();
}

}  // namespace onebit
