// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-gather, segment by segment:
//
//   compress              my chunk                                  (dense: nothing)
//   exchange 1            send that packet to all; receive every other chunk's packet
//   decode                write each chunk, my own too, to the output
//   exchange 2            verdicts                                  (dense: none)
//
// With error feedback all ranks hold the same estimate of every chunk. A packet carries the
// compressed difference between a chunk and its estimate, and all ranks, the owner included, add
// the decoded packet to the estimate. The output is the estimate after that. Whatever one call
// loses is part of the next difference.
#include "plan/algorithms.h"
#include "plan/chunk_planner.h"

namespace onebit {
namespace {

void AddDenseSegment(ChunkPlanner& planner, uint32_t segment) {
  for (uint32_t k = 1; k < planner.ranks(); ++k) {
    const uint32_t peer = planner.Peer(k);
    Step send = planner.StepOf(StepKind::kSend, planner.rank(), segment);
    send.peer = peer;
    send.region = planner.InputRegion(send);
    planner.builder().Add(send);
    planner.AddPieceOf(peer, segment);
  }
}

void AddSegment(ChunkPlanner& planner, uint32_t segment) {
  PlanBuilder& builder = planner.builder();
  const uint32_t rank = planner.rank();
  Step compress = planner.StepOf(StepKind::kCompress, rank, segment);
  compress.region = builder.Reserve(compress.shape.bytes());
  compress.packet = builder.NewPackets();
  const uint32_t compressed = planner.Compute(compress);

  // In place, the output of my chunk is the input of its compression.
  Step own = planner.StepOf(StepKind::kDecode, rank, segment);
  own.peer = rank;
  own.region = compress.region;
  planner.Compute(own, {compressed});
  for (uint32_t k = 1; k < planner.ranks(); ++k) {
    const uint32_t peer = planner.Peer(k);
    Step send = planner.StepOf(StepKind::kSend, rank, segment);
    send.peer = peer;
    send.region = compress.region;
    send.packet = compress.packet;
    builder.Add(send, {compressed});
    planner.AddPieceOf(peer, segment);
  }
}

}  // namespace

Plan PlanAllGather(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  ChunkPlanner planner(key, rank, ranks, segment_elements);
  planner.plan().input_begin = rank * key.count;
  // The estimate is fp32 whatever the output's type.
  if (key.codec.kind == CodecKind::kSign) planner.plan().scale_type = key.type;
  for (uint32_t segment = 0; segment < planner.segments(); ++segment) {
    planner.is_dense() ? AddDenseSegment(planner, segment) : AddSegment(planner, segment);
  }
  if (planner.is_dense()) planner.AddOwnCopy();
  return std::move(planner).Build();
}

}  // namespace onebit
