// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One exchange, for tensors so small that only latency counts: every rank sends its whole packet to
// all others and does the server's work for every chunk. Chunks, sums and scales are those of
// allreduce_sra.cc, and the replicated server residual stays equal on all ranks, so the output has
// the same bytes.
#include "plan/algorithms.h"
#include "plan/plan_builder.h"
#include "plan/runs.h"

namespace onebit {

PacketShape WholeShape(const PlanKey& key, uint32_t ranks, const PacketFormat& format) {
  const Partition chunks = ChunksOf(key, ranks);
  if (key.cuts != nullptr) {
    RunWalk walk(key.cuts.get(), key.codec.block);
    for (uint32_t chunk = 0; chunk < ranks; ++chunk) {
      walk.Over(chunks.Chunk(chunk), [](const PacketRun&) {});
    }
    return walk.Shape(format);
  }
  PacketShape shape = ShapeOf(0, format);
  for (uint32_t chunk = 0; chunk < ranks; ++chunk) {
    shape.scale_count += ShapeOf(chunks.Chunk(chunk).count, format).scale_count;
    shape.element_count += chunks.Chunk(chunk).count;
  }
  return shape;
}

Plan PlanAllReduceOneExchange(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, ChunksOf(key, ranks));
  const ElementRange all{0, key.count};
  builder.plan().compressed = builder.plan().served = all;
  const PacketShape mean_shape = WholeShape(key, ranks, key.mean_format());
  PacketShape shape = WholeShape(key, ranks, key.packet_format());
  if (key.codec.block == 0)
    shape.scale_count = key.count == 0 ? 0 : 1;  // one worker scale per rank

  const auto [packets, stride] = builder.ReservePerRank(shape.bytes());
  const auto packet_of = [&, first = packets, step = stride](uint32_t r) {
    return Region{Space::kPackets, first + r * step, shape.bytes()};
  };

  Step compress = {.kind = StepKind::kCompress, .chunk = kAllChunks, .elements = all};
  compress.region = packet_of(rank);
  compress.shape = shape;
  compress.packet = builder.NewPackets();
  const uint32_t compressed = builder.Add(compress);

  Step reduce = {.kind = StepKind::kReduce, .chunk = kAllChunks, .elements = all};
  reduce.region = builder.Reserve(mean_shape.bytes());
  reduce.shape = mean_shape;
  reduce.packet = builder.NewPackets();
  reduce.sources = packets;
  reduce.stride = stride;
  reduce.own_source = compress.region.offset;
  if (key.is_weighted) reduce.mean = builder.ReserveMean(key.count);
  const uint32_t reduced = builder.Add(reduce, {compressed});

  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    Step send = {.kind = StepKind::kSend, .chunk = kAllChunks, .peer = peer, .elements = all};
    send.region = compress.region;
    send.shape = shape;
    send.packet = compress.packet;
    builder.Add(send, {compressed});
    Step receive = {.kind = StepKind::kReceive, .chunk = kAllChunks, .peer = peer, .elements = all};
    receive.region = packet_of(peer);
    receive.shape = shape;
    builder.AddDependency(reduced, builder.Add(receive));
  }

  Step decode = {.kind = StepKind::kDecode, .chunk = kAllChunks, .elements = all};
  decode.region = reduce.region;
  decode.shape = mean_shape;
  builder.Add(decode, {reduced});
  return std::move(builder).Build();
}

}  // namespace onebit
