// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Two levels, for hosts with several ranks: what leaves a host is one sum of what its ranks have.
// Chunk l G + g is that of rail l on host g, and belongs to local rank l there. Part l of the
// tensor is the chunks of rail l. Chunk by chunk, and in each segment by segment:
//
//   exchange 1            inside a host: send local rank l my elements of part l
//   sum                   the elements of my part in the order of local ranks
//   compress              the mean of my host, each chunk of my part       (dense: nothing)
//   exchange 2            on my rail: send each chunk's packet or sum to the chunk's owner
//   reduce                those of the hosts for my chunk in the order of hosts
//   exchange 3            on my rail: send my chunk's packet or result to all
//   exchange 4            inside a host: send those of every chunk of my part to all
//   decode                write each chunk to the output                   (dense: nothing)
//
// A rank without a rail takes part in exchanges 1 and 4 only. Packets are passed on as they came.
#include <algorithm>
#include <tuple>
#include <vector>

#include "plan/algorithms.h"
#include "plan/host_sums.h"
#include "plan/plan_builder.h"
#include "plan/runs.h"

namespace onebit {
namespace {

class TwoLevelPlanner {
 public:
  TwoLevelPlanner(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                  const Partition& partition)
      : builder_(key, rank, hosts.ranks(), partition),
        key_(key),
        partition_(partition),
        hosts_(hosts),
        host_(hosts.HostOf(rank)),
        local_rank_(hosts.LocalRankOf(rank)),
        local_ranks_(static_cast<uint32_t>(hosts.RanksOn(host_).size())),
        is_dense_(key.codec.is_dense()),
        sums_(builder_, hosts, rank),
        given_(hosts.rails() * hosts.hosts()) {
    builder_.SetHosts(hosts);
    if (has_rail()) {
      const size_t begin = partition.Chunk(ChunkOf(local_rank_, 0)).begin;
      const size_t end = partition.Chunk(ChunkOf(local_rank_, hosts.hosts() - 1)).end();
      builder_.plan().compressed = {begin, end - begin};
      builder_.plan().served = partition.Chunk(ChunkOf(local_rank_, host_));
    }
  }

  void AddSegment(uint32_t segment) {
    segment_ = segment;
    offered_.assign(hosts_.hosts(), {});
    results_.assign(hosts_.hosts(), {});
    if (has_rail()) ReservePieces();
    // The chunks of this host come last, so that other hosts' can begin.
    for (uint32_t k = 1; k <= hosts_.hosts(); ++k) AddOffer((host_ + k) % hosts_.hosts());
    if (has_rail()) AddResults();
    for (uint32_t k = 0; k < hosts_.hosts(); ++k) {
      const uint32_t host = (host_ + hosts_.hosts() - k) % hosts_.hosts();
      if (has_rail()) AddForwards(host);
      AddForwarded(host);
    }
  }

  Plan Build() && { return std::move(builder_).Build(); }

 private:
  bool has_rail() const { return local_rank_ < hosts_.rails(); }
  uint32_t ChunkOf(uint32_t rail, uint32_t host) const { return rail * hosts_.hosts() + host; }
  // The k-th local rank after this one.
  uint32_t LocalRank(uint32_t k) const { return (local_rank_ + k) % local_ranks_; }
  uint32_t RankHere(uint32_t local_rank) const { return hosts_.RanksOn(host_)[local_rank]; }
  uint32_t RankOnRail(uint32_t host) const { return hosts_.RanksOn(host)[local_rank_]; }

  Step StepOf(StepKind kind, uint32_t chunk) const {
    return {.kind = kind,
            .segment = static_cast<uint16_t>(segment_),
            .chunk = chunk,
            .elements = partition_.Segment(chunk, segment_)};
  }
  Step PacketStep(StepKind kind, uint32_t chunk, const PacketFormat& format) const {
    Step step = StepOf(kind, chunk);
    if (!is_dense_) step.shape = ShapeOf(key_, step.elements, format);
    return step;
  }
  size_t BytesOf(const Step& step) const {
    return is_dense_ ? step.elements.count * kernels::BytesOf(key_.type) : step.shape.bytes();
  }
  // Makes a step a message inside the host: a pair of ranks has one for each host's chunk.
  void SendHere(uint8_t exchange, uint32_t host, uint32_t local_rank, Step* message) const {
    message->exchange = exchange;
    message->peer = RankHere(local_rank);
    message->segment = static_cast<uint16_t>(host * partition_.segments() + segment_);
  }
  void SendOnRail(uint8_t exchange, uint32_t host, Step* message) const {
    message->exchange = exchange;
    message->peer = RankOnRail(host);
  }
  uint32_t AddSend(Step send, const HostPart& made) {
    send.kind = StepKind::kSend;
    send.region = made.region;
    send.packet = made.packet;
    return builder_.Add(send, {made.step});
  }
  Region In(Space space, const Step& step) const {
    return DenseRegion(space, step.elements, key_.type);
  }

  // Space for what the hosts send for this rank's chunk, its own host's included.
  void ReservePieces() {
    const Step own =
        PacketStep(StepKind::kReduce, ChunkOf(local_rank_, host_), key_.packet_format());
    std::tie(pieces_, pieces_stride_) = builder_.Reserve(hosts_.hosts(), BytesOf(own));
  }
  Region PieceOf(uint32_t host, size_t bytes) const {
    return {Space::kPackets, pieces_ + host * pieces_stride_, bytes};
  }

  // Exchange 1 of the chunks of all rails on `host`. For the one on this rank's rail, what this
  // host has for its owner, and exchange 2.
  void AddOffer(uint32_t host) {
    for (uint32_t k = 1; k < local_ranks_; ++k) {
      const uint32_t rail = LocalRank(k);
      if (rail >= hosts_.rails()) continue;
      Step send = StepOf(StepKind::kSend, ChunkOf(rail, host));
      SendHere(1, host, rail, &send);
      send.region = In(Space::kInput, send);
      given_[send.chunk] = builder_.AddOfInput(send);
    }
    if (!has_rail()) return;
    const uint32_t chunk = ChunkOf(local_rank_, host);
    Step send = PacketStep(StepKind::kSend, chunk, key_.packet_format());
    HostPart& offer = offered_[host];
    if (local_ranks_ == 1) {
      offer.region = In(Space::kInput, send);
    } else {
      offer = AddHostSum(chunk, host);
    }
    given_[chunk] = offer.step;
    if (!is_dense_) {
      const Step compress = PacketStep(StepKind::kCompress, chunk, key_.packet_format());
      offer = sums_.AddCompress(compress, offer);
    }
    if (local_ranks_ == 1) given_[chunk] = offer.step;
    if (host == host_) return;
    SendOnRail(2, host, &send);
    const uint32_t sent = AddSend(send, offer);
    if (given_[chunk] == kNoStep) given_[chunk] = sent;
  }

  // Dense, the sum of this rank's own chunk is where its reduction finds it.
  HostPart AddHostSum(uint32_t chunk, uint32_t host) {
    const Step sum = StepOf(StepKind::kHostSum, chunk);
    const auto segment = static_cast<uint16_t>(host * partition_.segments() + segment_);
    if (!is_dense_) return sums_.AddSum(sum, segment, {});
    const size_t bytes = In(Space::kInput, sum).bytes;
    return sums_.AddSum(sum, segment,
                        host == host_ ? PieceOf(host, bytes) : builder_.Reserve(bytes));
  }

  // The result of this rank's chunk, and those of the others on its rail. In place, a result
  // overwrites elements that must have been sent or added by then.
  void AddResults() {
    results_[host_] = AddReduce();
    for (uint32_t k = 1; k < hosts_.hosts(); ++k) {
      const uint32_t host = (host_ + k) % hosts_.hosts();
      Step send = PacketStep(StepKind::kSend, ChunkOf(local_rank_, host_), key_.mean_format());
      SendOnRail(3, host, &send);
      AddSend(send, results_[host_]);
      Step receive = PacketStep(StepKind::kReceive, ChunkOf(local_rank_, host), key_.mean_format());
      SendOnRail(3, host, &receive);
      if (!is_dense_) receive.packet = builder_.NewPackets();
      results_[host] = AddReceive(receive);
    }
    if (!is_dense_) AddDecode(ChunkOf(local_rank_, host_), results_[host_]);
  }

  HostPart AddReduce() {
    const uint32_t chunk = ChunkOf(local_rank_, host_);
    Step reduce = PacketStep(StepKind::kReduce, chunk, key_.mean_format());
    reduce.pieces = hosts_.hosts();
    reduce.sources = pieces_;
    reduce.stride = pieces_stride_;
    if (is_dense_) {
      reduce.own_piece = local_ranks_ == 1 ? host_ : kNoPiece;
      reduce.region = In(Space::kOutput, reduce);
    } else {
      reduce.own_piece = host_;
      reduce.own_source = offered_[host_].region.offset;
      reduce.region = builder_.Reserve(reduce.shape.bytes());
      reduce.packet = builder_.NewPackets();
      reduce.mean = builder_.ReserveMean(reduce.elements.count);
    }
    const uint32_t reduced = builder_.Add(reduce, {offered_[host_].step});
    for (uint32_t k = 1; k < hosts_.hosts(); ++k) {
      const uint32_t host = (host_ + k) % hosts_.hosts();
      Step receive = PacketStep(StepKind::kReceive, chunk, key_.packet_format());
      SendOnRail(2, host, &receive);
      receive.region = PieceOf(host, BytesOf(receive));
      builder_.AddDependency(reduced, builder_.Add(receive));
    }
    return {.step = reduced, .region = reduce.region, .packet = reduce.packet};
  }

  // Receives a chunk's result, and decodes it if it is a packet.
  HostPart AddReceive(Step receive) {
    if (is_dense_) {
      receive.region = In(Space::kOutput, receive);
      return {.step = builder_.Add(receive, {given_[receive.chunk]}), .region = receive.region};
    }
    receive.region = builder_.Reserve(receive.shape.bytes());
    const HostPart made = {
        .step = builder_.Add(receive), .region = receive.region, .packet = receive.packet};
    AddDecode(receive.chunk, made);
    return made;
  }

  void AddDecode(uint32_t chunk, const HostPart& packet) {
    Step decode = PacketStep(StepKind::kDecode, chunk, key_.mean_format());
    decode.region = packet.region;
    builder_.Add(decode, {packet.step, given_[chunk]});
  }

  // Exchange 4 of the chunk of this rank's rail on `host`.
  void AddForwards(uint32_t host) {
    for (uint32_t k = 1; k < local_ranks_; ++k) {
      Step send = PacketStep(StepKind::kSend, ChunkOf(local_rank_, host), key_.mean_format());
      SendHere(4, host, LocalRank(k), &send);
      AddSend(send, results_[host]);
    }
  }

  // Exchange 4 of the chunks of the other rails.
  void AddForwarded(uint32_t host) {
    for (uint32_t k = 1; k < local_ranks_; ++k) {
      const uint32_t rail = LocalRank(k);
      if (rail >= hosts_.rails()) continue;
      Step receive = PacketStep(StepKind::kReceive, ChunkOf(rail, host), key_.mean_format());
      SendHere(4, host, rail, &receive);
      AddReceive(receive);
    }
  }

  PlanBuilder builder_;
  const PlanKey& key_;
  const Partition& partition_;
  const HostMap& hosts_;
  const uint32_t host_;
  const uint32_t local_rank_;
  const uint32_t local_ranks_;
  const bool is_dense_;
  HostSums sums_;
  uint32_t segment_ = 0;
  std::vector<uint32_t> given_;  // by chunk: the last step that reads its elements of the input
  // By host, for the chunk there on this rank's rail: what this host has for it, and its result.
  std::vector<HostPart> offered_;
  std::vector<HostPart> results_;
  size_t pieces_ = 0;
  size_t pieces_stride_ = 0;
};

}  // namespace

Plan PlanAllReduceTwoLevels(const PlanKey& key, uint32_t rank, const HostMap& hosts,
                            size_t segment_elements) {
  const size_t chunks = size_t{hosts.rails()} * hosts.hosts();
  if (key.codec.is_dense()) {
    // Segments of one exchange pass while others are in the next, so that even a short chunk is
    // cut.
    constexpr size_t kLeastElements = 8192;
    constexpr size_t kSegments = 4;
    const size_t quarter = key.count / (chunks * kSegments);
    segment_elements =
        std::min(DenseSegmentElements(segment_elements), std::max(quarter, kLeastElements));
  }
  // The header numbers segments of all hosts' chunks with 16 bits.
  if (size_t{hosts.hosts()} * Partition::kMaxSegments > UINT16_MAX) segment_elements = 0;
  const Partition partition(key.count, chunks, key.chunk_alignment, key.codec.segment_unit(),
                            segment_elements, key.cuts.get());
  TwoLevelPlanner planner(key, rank, hosts, partition);
  for (uint32_t segment = 0; segment < partition.segments(); ++segment) planner.AddSegment(segment);
  return std::move(planner).Build();
}

}  // namespace onebit
