// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plan/chunk_planner.h"

#include "plan/algorithms.h"

namespace onebit {
namespace {

// A tensor-wide scale is known only after the last element, which rules out segments. Where
// elements have no block, segment_unit() says how segments are cut.
Partition PartitionOf(const PlanKey& key, uint32_t ranks, size_t segment_elements) {
  if (key.codec.is_dense()) {
    segment_elements = DenseSegmentElements(segment_elements);
  } else if (key.codec.block == 0) {
    segment_elements = 0;
  }
  // The header numbers segments of all chunks with 16 bits.
  if (key.has_two_levels && size_t{ranks} * Partition::kMaxSegments > UINT16_MAX) {
    segment_elements = 0;
  }
  return Partition::OfChunks(key.count, ranks, key.codec.segment_unit(), segment_elements);
}

}  // namespace

ChunkPlanner::ChunkPlanner(const PlanKey& key, uint32_t rank, uint32_t ranks,
                           size_t segment_elements)
    : key_(key),
      rank_(rank),
      ranks_(ranks),
      builder_(key, rank, ranks, PartitionOf(key, ranks, segment_elements)) {
  plan().tensor_elements = plan().partition.element_count();
}

ElementRange ChunkPlanner::Elements(uint32_t chunk, uint32_t segment) const {
  return builder_.plan().partition.Segment(chunk, segment);
}

size_t ChunkPlanner::PieceBytes(uint32_t chunk, uint32_t segment) const {
  const size_t count = Elements(chunk, segment).count;
  return is_dense() ? count * kernels::BytesOf(key_.type)
                    : ShapeOf(count, key_.packet_format()).bytes();
}

Step ChunkPlanner::StepOf(StepKind kind, uint32_t chunk, uint32_t segment) const {
  const ElementRange elements = Elements(chunk, segment);
  return {.kind = kind,
          .segment = static_cast<uint16_t>(segment),
          .chunk = chunk,
          .elements = elements,
          .shape = is_dense() ? PacketShape{} : ShapeOf(elements.count, key_.packet_format())};
}

Region ChunkPlanner::InputRegion(const Step& step) const {
  const size_t begin = step.elements.begin - builder_.plan().input_begin;
  return DenseRegion(Space::kInput, {begin, step.elements.count}, key_.type);
}

Region ChunkPlanner::OutputRegion(const Step& step) const {
  const size_t begin = step.elements.begin - builder_.plan().output_begin;
  return DenseRegion(Space::kOutput, {begin, step.elements.count}, key_.type);
}

void ChunkPlanner::PassInsideHost(uint8_t exchange, uint32_t number, Step* message) const {
  message->exchange = exchange;
  message->segment = static_cast<uint16_t>(number * segments() + message->segment);
}

uint32_t ChunkPlanner::AddReceive(Step* receive) {
  if (is_dense()) {
    receive->region = OutputRegion(*receive);
    return builder_.Add(*receive);
  }
  receive->region = builder_.Reserve(receive->shape.bytes());
  const uint32_t received = builder_.Add(*receive);
  Step decode = StepOf(StepKind::kDecode, receive->chunk, receive->segment % segments());
  decode.peer = receive->chunk;
  decode.region = receive->region;
  Compute(decode, {received});
  return received;
}

uint32_t ChunkPlanner::Compute(const Step& step, std::initializer_list<uint32_t> after) {
  computing_.push_back(builder_.Add(step, after));
  return computing_.back();
}

void ChunkPlanner::AddOwnCopy() {
  for (uint32_t segment = 0; segment < segments(); ++segment) {
    Step copy = StepOf(StepKind::kCopy, rank_, segment);
    copy.region = InputRegion(copy);
    copy.shape = {};
    Compute(copy);
  }
}

void ChunkPlanner::AddVerdicts() {
  Step verdict = {.kind = StepKind::kVerdict, .exchange = key_.verdict_exchange(), .chunk = rank_};
  if (key_.has_drift_check) {
    verdict.shape = kDriftCheckShape;
    verdict.elements = builder_.plan().partition.Chunk(rank_);
  }
  ExchangeVerdicts(&builder_, verdict, computing_);
}

Plan ChunkPlanner::Build() && {
  if (key_.codec.has_verdict()) AddVerdicts();
  return std::move(builder_).Build();
}

void ExchangeVerdicts(PlanBuilder* builder, Step verdict, const std::vector<uint32_t>& computing) {
  const Plan& plan = builder->plan();
  if (verdict.shape.bytes() != 0) verdict.region = builder->Reserve(verdict.shape.bytes());
  verdict.packet = builder->NewPackets();
  const uint32_t decided = builder->Add(verdict);
  for (const uint32_t step : computing) builder->AddDependency(decided, step);
  for (uint32_t k = 1; k < plan.ranks; ++k) {
    const uint32_t peer = (plan.rank + k) % plan.ranks;
    Step send = verdict;
    send.kind = StepKind::kSend;
    send.peer = peer;
    builder->Add(send, {decided});
    Step receive = send;
    receive.kind = StepKind::kReceive;
    receive.chunk = peer;
    receive.packet = kNoPacket;
    if (verdict.shape.bytes() != 0) receive.region = builder->Reserve(verdict.shape.bytes());
    builder->Add(receive);
  }
}

}  // namespace onebit
