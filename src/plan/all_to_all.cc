// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-to-all, segment by segment:
//
//   for each other rank j compress my elements for it               (dense: nothing)
//   exchange 1            send that packet to rank j; receive everybody's packet for me
//   decode                write each packet to the output           (dense: received in place)
//   exchange 2            verdicts                                  (dense: none)
//
// A rank copies the part for itself uncompressed.
#include "plan/algorithms.h"
#include "plan/chunk_planner.h"

namespace onebit {
namespace {

void AddPeer(ChunkPlanner& planner, uint32_t peer, uint32_t segment) {
  PlanBuilder& builder = planner.builder();
  Step send = planner.StepOf(StepKind::kSend, peer, segment);
  send.peer = peer;
  if (planner.is_dense()) {
    send.region = planner.InputRegion(send);
    builder.Add(send);
  } else {
    Step compress = planner.StepOf(StepKind::kCompress, peer, segment);
    compress.region = send.region = builder.Reserve(compress.shape.bytes());
    compress.packet = send.packet = builder.NewPackets();
    builder.Add(send, {planner.Compute(compress)});
  }
  Step receive = planner.StepOf(StepKind::kReceive, peer, segment);
  receive.peer = peer;
  planner.AddReceive(&receive);
}

}  // namespace

Plan PlanAllToAll(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  ChunkPlanner planner(key, rank, ranks, segment_elements);
  planner.plan().scale_type = key.type;
  for (uint32_t segment = 0; segment < planner.segments(); ++segment) {
    for (uint32_t k = 1; k < ranks; ++k) AddPeer(planner, planner.Peer(k), segment);
  }
  planner.AddOwnCopy();
  return std::move(planner).Build();
}

}  // namespace onebit
