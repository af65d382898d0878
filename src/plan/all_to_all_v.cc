// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// All-to-all with counts for every pair: the steps of all_to_all.cc, one message per pair. Only
// sizes change from call to call, so a plan is built once and resized before each call.
#include <algorithm>

#include "plan/algorithms.h"
#include "plan/chunk_planner.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

Step MessageStep(StepKind kind, uint32_t peer) {
  return {.kind = kind, .chunk = peer, .peer = peer};
}

// Allocates the packet space of a plan from the start again.
class PacketSpace {
 public:
  explicit PacketSpace(size_t header_room) : header_room_(header_room) {}

  Region Take(size_t bytes) {
    bytes_ += header_room_;
    const Region region{Space::kPackets, bytes_, bytes};
    bytes_ += RoundUp(bytes, kCacheLine);
    return region;
  }
  size_t bytes() const { return bytes_; }

 private:
  const size_t header_room_;
  size_t bytes_ = 0;
};

// A buffer whose ranges are all empty may be null, so an empty range must not have an offset.
ElementRange RangeOf(size_t begin, size_t count) { return {count == 0 ? 0 : begin, count}; }

// Sets what a step of a pair reads, sends or writes. The steps of a packet follow each other, its
// producer first; `packet` is the region of the latest producer.
void ResizeStep(const Plan& plan, const PairCounts& pairs, PacketSpace& space, Region& packet,
                Step& step) {
  const bool is_dense = plan.key.codec.is_dense();
  const ElementRange sent = RangeOf(pairs.send_begins[step.peer], pairs.send_counts[step.peer]);
  const ElementRange received =
      RangeOf(pairs.receive_begins[step.peer], pairs.receive_counts[step.peer]);
  const bool is_outgoing = step.kind == StepKind::kCompress || step.kind == StepKind::kSend;
  step.elements = is_outgoing ? sent : received;
  if (step.exchange == 2 || step.kind == StepKind::kVerdict) return;
  if (step.kind == StepKind::kCopy) {
    step.region = DenseRegion(Space::kInput, sent, plan.key.type);
  } else if (is_dense) {
    step.region =
        DenseRegion(is_outgoing ? Space::kInput : Space::kOutput, step.elements, plan.key.type);
  } else {
    step.shape = ShapeOf(step.elements.count, plan.key.packet_format());
    const bool is_first = step.kind == StepKind::kCompress || step.kind == StepKind::kReceive;
    if (is_first) packet = space.Take(step.shape.bytes());
    step.region = packet;
  }
}

}  // namespace

Plan PlanAllToAllv(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  const bool is_dense = key.codec.is_dense();
  PlanBuilder builder(key, rank, ranks, Partition(0, 1, kernels::kBlockMultiple, 1, 0));
  builder.plan().scale_type = key.type;
  std::vector<uint32_t> computing;
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    Step send = MessageStep(StepKind::kSend, peer);
    if (is_dense) {
      builder.Add(send);
      builder.Add(MessageStep(StepKind::kReceive, peer));
      continue;
    }
    Step compress = MessageStep(StepKind::kCompress, peer);
    compress.packet = send.packet = builder.NewPackets();
    computing.push_back(builder.Add(compress));
    builder.Add(send, {computing.back()});
    const uint32_t received = builder.Add(MessageStep(StepKind::kReceive, peer));
    computing.push_back(builder.Add(MessageStep(StepKind::kDecode, peer), {received}));
  }
  computing.push_back(builder.Add(MessageStep(StepKind::kCopy, rank)));
  if (key.codec.has_verdict() && ranks > 1) {
    Step verdict = MessageStep(StepKind::kVerdict, rank);
    verdict.exchange = 2;
    ExchangeVerdicts(&builder, verdict, computing);
  }
  return std::move(builder).Build();
}

void ResizeToPiece(const PairCounts& pairs, size_t begin, size_t count, Plan* plan) {
  const auto left_of = [&](const Step& step) {
    const bool is_received = step.kind == StepKind::kReceive;
    const size_t all = (is_received ? pairs.receive_counts : pairs.send_counts)[step.peer];
    return all - std::min(all, begin);
  };
  // Without elements a message is still sent, once.
  if (begin != 0) std::erase_if(plan->steps, [&](const Step& step) { return left_of(step) == 0; });
  IndexReceives(plan);
  plan->tensor_elements = begin == 0 ? TensorElementsOf(pairs, plan->ranks) : 0;
  plan->wire_bytes = 0;
  for (Step& step : plan->steps) {
    const size_t left = left_of(step);
    step.elements = {step.peer * count, std::min(left, count)};
    step.region = DenseRegion(step.kind == StepKind::kReceive ? Space::kOutput : Space::kInput,
                              step.elements, plan->key.type);
    if (step.kind == StepKind::kCopy) continue;
    step.elements.count = left;
    if (step.kind == StepKind::kSend) plan->wire_bytes += kHeaderBytes + step.region.bytes;
  }
}

size_t TensorElementsOf(const PairCounts& pairs, size_t ranks) {
  size_t sent = 0;
  size_t received = 0;
  for (size_t peer = 0; peer < ranks; ++peer) {
    sent += pairs.send_counts[peer];
    received += pairs.receive_counts[peer];
  }
  return std::max(sent, received);
}

void ResizeAllToAllv(const PairCounts& pairs, Plan* plan) {
  PacketSpace space(plan->key.header_room);
  Region packet;
  plan->tensor_elements = TensorElementsOf(pairs, plan->ranks);
  plan->wire_bytes = 0;
  for (Step& step : plan->steps) {
    ResizeStep(*plan, pairs, space, packet, step);
    if (step.kind == StepKind::kSend) plan->wire_bytes += kHeaderBytes + step.region.bytes;
  }
  plan->packet_space_bytes = space.bytes();
}

}  // namespace onebit
