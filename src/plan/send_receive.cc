// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sends and receives between pairs of ranks:
//
//   sender     compress                                             (dense: nothing)
//              send that packet to the peer
//   receiver   receive it; decode it to the output                  (dense: received in place)
//
// With error feedback both hold the same estimate of the sender's elements, as all ranks do in an
// all-gather. The sender adds the packet to its own before it sends it: then the flag of a value
// that is not finite stands for the results of both. In some calls a second message has the
// checksum of the sender's estimate, and the receiver compares its own.
#include <utility>

#include "plan/algorithms.h"
#include "plan/group_plan.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

// `message` is the first one, and `computed` the step that has changed this rank's estimate.
void AddDriftCheck(PlanBuilder* builder, const Step& message, uint32_t computed) {
  Step verdict = {.kind = StepKind::kVerdict,
                  .exchange = 2,
                  .elements = message.elements,
                  .region = builder->Reserve(kDriftCheckShape.bytes()),
                  .shape = kDriftCheckShape,
                  .packet = builder->NewPackets()};
  const uint32_t decided = builder->Add(verdict, {computed});
  Step other = verdict;
  other.kind = message.kind;
  other.peer = message.peer;
  if (message.kind == StepKind::kSend) {
    builder->Add(other, {decided});
    return;
  }
  other.region = builder->Reserve(kDriftCheckShape.bytes());
  other.packet = kNoPacket;
  builder->Add(other);
}

}  // namespace

Plan PlanSendReceive(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, Partition(key.count, 1, 1, 1, 0));
  // The estimate is fp32 whatever the output's type.
  if (!key.is_delta()) builder.plan().scale_type = key.type;
  const bool is_dense = key.codec.is_dense();
  const ElementRange all = {0, key.count};
  Step step = {.peer = key.root, .elements = all};
  if (!is_dense) step.shape = ShapeOf(key.count, key.packet_format());
  if (key.root == rank) {
    if (!key.is_receive) return std::move(builder).Build();
    step.kind = StepKind::kCopy;
    step.region = DenseRegion(Space::kInput, all, key.type);
    step.shape = {};
    builder.Add(step);
    return std::move(builder).Build();
  }
  step.region = !is_dense        ? builder.Reserve(step.shape.bytes())
                : key.is_receive ? DenseRegion(Space::kOutput, all, key.type)
                                 : DenseRegion(Space::kInput, all, key.type);
  step.kind = key.is_receive ? StepKind::kReceive : StepKind::kSend;
  if (is_dense) {
    builder.Add(step);
    return std::move(builder).Build();
  }
  uint32_t computed = kNoStep;
  Step decode = step;
  decode.kind = StepKind::kDecode;
  if (key.is_receive) {
    computed = builder.Add(decode, {builder.Add(step)});
  } else {
    Step compress = step;
    compress.kind = StepKind::kCompress;
    compress.packet = step.packet = builder.NewPackets();
    computed = builder.Add(compress);
    if (key.is_delta()) computed = builder.Add(decode, {computed});
    builder.Add(step, {computed});
  }
  if (key.has_drift_check) AddDriftCheck(&builder, step, computed);
  return std::move(builder).Build();
}

// A send starts when it is ready, so it also waits for what earlier sends to its peer wait for: the
// packets for one peer are made in the order of the calls.
GroupPlan MergePairs(std::vector<std::shared_ptr<const Plan>> calls, uint32_t rank,
                     uint32_t ranks) {
  PlanBuilder builder({.collective = Collective::kSendRecv, .count = calls.size()}, rank, ranks,
                      Partition(0, 1, 1, 1, 0));
  GroupPlan group;
  size_t packet_bytes = 0;
  std::vector<uint32_t> latest_made(ranks, kNoStep);  // by peer
  for (uint32_t number = 0; number < calls.size(); ++number) {
    const Plan& call = *calls[number];
    const auto first = static_cast<uint32_t>(builder.plan().steps.size());
    const uint32_t first_packet = builder.NewPackets(call.packet_count);
    const uint32_t earlier = call.key.is_receive ? kNoStep : latest_made[call.key.root];
    for (Step step : call.steps) {
      step.call = number;
      step.dependency_count = 0;
      if (step.packet != kNoPacket) step.packet += first_packet;
      const uint32_t added = builder.Add(step, {earlier});
      const bool is_made_here = !call.key.is_receive && step.kind != StepKind::kSend;
      if (is_made_here) latest_made[call.key.root] = added;
    }
    for (uint32_t index = 0; index < call.steps.size(); ++index) {
      const Step& step = call.steps[index];
      for (uint32_t i = 0; i < step.successor_count; ++i) {
        builder.AddDependency(first + call.successors[step.first_successor + i], first + index);
      }
    }
    group.packets.push_back(packet_bytes);
    packet_bytes += call.packet_space_bytes;
    builder.plan().tensor_elements += call.tensor_elements;
  }
  builder.plan().packet_space_bytes = packet_bytes;
  group.plan = std::move(builder).Build();
  group.calls = std::move(calls);
  return group;
}

}  // namespace onebit
