// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sparse packets are so small that every rank can receive those of all. The tensor is one chunk,
// which nobody serves: each rank sums the packets of all ranks in rank order, segment by segment,
// straight to the output.
#include <tuple>

#include "plan/algorithms.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

void AddSegment(PlanBuilder& builder, uint32_t segment) {
  const uint32_t rank = builder.plan().rank;
  const uint32_t ranks = builder.plan().ranks;
  const PlanKey& key = builder.plan().key;
  const ElementRange elements = builder.plan().partition.Segment(0, segment);
  const PacketShape shape = ShapeOf(elements.count, key.packet_format());
  const auto step_of = [&](StepKind kind) {
    return Step{.kind = kind,
                .segment = static_cast<uint16_t>(segment),
                .elements = elements,
                .shape = shape};
  };

  Step compress = step_of(StepKind::kCompress);
  compress.region = builder.Reserve(shape.bytes());
  compress.packet = builder.NewPackets();
  const uint32_t compressed = builder.Add(compress);

  // In place, the output is the input of the compression.
  Step average = step_of(StepKind::kReduce);
  average.region = DenseRegion(Space::kOutput, elements, key.type);
  std::tie(average.sources, average.stride) = builder.ReservePerRank(shape.bytes());
  average.own_source = compress.region.offset;
  if (key.is_weighted) average.mean = builder.ReserveMean(elements.count);
  const uint32_t averaged = builder.Add(average, {compressed});

  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    Step send = step_of(StepKind::kSend);
    send.peer = peer;
    send.region = compress.region;
    send.packet = compress.packet;
    builder.Add(send, {compressed});
    Step receive = step_of(StepKind::kReceive);
    receive.peer = peer;
    receive.region = {Space::kPackets, average.sources + peer * average.stride, shape.bytes()};
    builder.AddDependency(averaged, builder.Add(receive));
  }
}

}  // namespace

Plan PlanAllReduceOneHop(const PlanKey& key, uint32_t rank, uint32_t ranks,
                         size_t segment_elements) {
  const Partition tensor(key.count, 1, key.chunk_alignment, key.codec.block, segment_elements);
  PlanBuilder builder(key, rank, ranks, tensor);
  builder.plan().compressed = builder.plan().served = {0, key.count};
  for (uint32_t segment = 0; segment < tensor.segments(); ++segment) AddSegment(builder, segment);
  return std::move(builder).Build();
}

}  // namespace onebit
