// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Broadcast and barrier. Every rank sends every other one a header in each exchange: without those
// that carry no payload, ranks could not learn whether all made the same call.
//
// A short broadcast takes one exchange, in which the root sends its whole buffer to all. A longer
// one takes two, segment by segment, and the root sends its buffer once, whatever the number of
// ranks:
//
//   exchange 1            the root sends each other rank that rank's chunk
//   exchange 2            these ranks send their chunks to each other
#include "plan/algorithms.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

class BroadcastPlanner {
 public:
  BroadcastPlanner(const PlanKey& key, uint32_t rank, uint32_t ranks, const Partition& partition,
                   bool has_one_exchange)
      : builder_(key, rank, ranks, partition),
        key_(key),
        rank_(rank),
        ranks_(ranks),
        has_one_exchange_(has_one_exchange) {}

  Plan Build() && {
    if (is_root()) {
      const ElementRange all{0, key_.count};
      builder_.Add({.kind = StepKind::kCopy,
                    .elements = all,
                    .region = DenseRegion(Space::kInput, all, key_.type)});
    }
    for (uint32_t segment = 0; segment < builder_.plan().segments(); ++segment) AddSegment(segment);
    return std::move(builder_).Build();
  }

 private:
  bool is_root() const { return rank_ == key_.root; }
  // The elements of a rank's chunk, which follow each other in the order of ranks after the root.
  ElementRange Elements(uint32_t rank, uint32_t segment) const {
    const uint32_t chunk = has_one_exchange_ ? 0 : (rank + ranks_ - key_.root - 1) % ranks_;
    return builder_.plan().partition.Segment(chunk, segment);
  }

  void AddSegment(uint32_t segment) {
    uint32_t own_chunk = kNoStep;
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      Step send{.kind = StepKind::kSend, .peer = peer};
      if (is_root()) SetPayload(Space::kInput, Elements(peer, segment), &send);
      Add(send, 1, segment);
      Step receive{.kind = StepKind::kReceive, .peer = peer};
      if (peer == key_.root) SetPayload(Space::kOutput, Elements(rank_, segment), &receive);
      const uint32_t received = Add(receive, 1, segment);
      if (peer == key_.root) own_chunk = received;
    }
    if (has_one_exchange_) return;
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      const bool has_payload = !is_root() && peer != key_.root;
      Step send{.kind = StepKind::kSend, .peer = peer};
      if (has_payload) SetPayload(Space::kOutput, Elements(rank_, segment), &send);
      Add(send, 2, segment, has_payload ? own_chunk : kNoStep);
      Step receive{.kind = StepKind::kReceive, .peer = peer};
      if (has_payload) SetPayload(Space::kOutput, Elements(peer, segment), &receive);
      Add(receive, 2, segment);
    }
  }

  void SetPayload(Space space, ElementRange elements, Step* message) const {
    message->elements = elements;
    message->region = DenseRegion(space, elements, key_.type);
  }

  uint32_t Add(Step message, uint8_t exchange, uint32_t segment, uint32_t after = kNoStep) {
    message.exchange = exchange;
    message.segment = static_cast<uint16_t>(segment);
    return builder_.Add(message, {after});
  }

  PlanBuilder builder_;
  const PlanKey& key_;
  const uint32_t rank_;
  const uint32_t ranks_;
  const bool has_one_exchange_;
};

}  // namespace

Plan PlanBroadcast(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  constexpr size_t kAlignment = kernels::kBlockMultiple;
  if (UsesOneExchangeToBroadcast(key, ranks)) {
    return BroadcastPlanner(key, rank, ranks, {key.count, 1, kAlignment, 1, 0}, true).Build();
  }
  // The root serves no chunk.
  const Partition partition(key.count, ranks - 1, kAlignment, kAlignment, segment_elements);
  return BroadcastPlanner(key, rank, ranks, partition, false).Build();
}

Plan PlanBarrier(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, Partition(0, 1, kernels::kBlockMultiple, 1, 0));
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    builder.Add({.kind = StepKind::kSend, .peer = peer});
    builder.Add({.kind = StepKind::kReceive, .peer = peer});
  }
  return std::move(builder).Build();
}

Plan PlanCopy(const PlanKey& key) {
  PlanBuilder builder(key, 0, 1, Partition(key.count, 1, kernels::kBlockMultiple, 1, 0));
  const ElementRange all{0, key.count};
  builder.plan().compressed = builder.plan().served = all;
  builder.Add({.kind = StepKind::kCopy,
               .elements = all,
               .region = DenseRegion(Space::kInput, all, key.type)});
  return std::move(builder).Build();
}

}  // namespace onebit
