// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plan/group_plan.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/aligned_buffer.h"
#include "plan/plan_builder.h"

namespace onebit {
namespace {

// Limits the tables of messages, which have a word for each call.
constexpr size_t kMostCalls = 4096;
constexpr uint64_t kCutsPerCall = 4;

class GroupPlanner {
 public:
  GroupPlanner(size_t calls, uint32_t rank, uint32_t ranks)
      : builder_({.collective = Collective::kGroup, .count = calls}, rank, ranks,
                 Partition(0, 1, kernels::kBlockMultiple, 1, 0)),
        table_bytes_(calls * sizeof(uint32_t)),
        rank_(rank),
        ranks_(ranks) {
    for (auto& pieces : pieces_) pieces.resize(ranks);
  }

  // Returns the offset of the call's packet space.
  size_t AddCall(const Plan& plan, uint32_t call) {
    builder_.plan().key.has_two_levels |= plan.key.has_two_levels;
    const size_t packets = builder_.Reserve(plan.packet_space_bytes).offset;
    const uint32_t first_packet = builder_.NewPackets(plan.packet_count);
    const auto first_step = static_cast<uint32_t>(builder_.plan().steps.size());
    for (Step step : plan.steps) {
      step.call = call;
      if (step.packet != kNoPacket) step.packet += first_packet;
      step.dependency_count = step.first_successor = step.successor_count = 0;
      const bool is_send = step.kind == StepKind::kSend;
      if (!is_send && step.kind != StepKind::kReceive) {
        builder_.Add(step);
        continue;
      }
      step.kind = is_send ? StepKind::kPack : StepKind::kUnpack;
      Pieces& pieces = pieces_[step.exchange - 1u][step.peer];
      (is_send ? pieces.sent : pieces.received).push_back(builder_.Add(step));
    }
    for (uint32_t index = 0; index < plan.steps.size(); ++index) {
      const Step& step = plan.steps[index];
      for (uint32_t i = 0; i < step.successor_count; ++i) {
        builder_.AddDependency(first_step + plan.successors[step.first_successor + i],
                               first_step + index);
      }
    }
    return packets;
  }

  Plan Build() && {
    for (uint8_t exchange = 1; exchange <= kMostExchanges; ++exchange) AddMessages(exchange);
    return std::move(builder_).Build();
  }

 private:
  // Steps that fill and empty the messages of one peer in one exchange.
  struct Pieces {
    std::vector<uint32_t> sent;
    std::vector<uint32_t> received;
  };

  // A message goes where any call alone would send one. Calls of one level do that between all
  // ranks.
  void AddMessages(uint8_t exchange) {
    for (uint32_t k = 1; k < ranks_; ++k) {
      const uint32_t peer = (rank_ + k) % ranks_;
      auto& [packs, unpacks] = pieces_[exchange - 1u][peer];
      if (!packs.empty()) {
        Step send = MessageStep(StepKind::kSend, exchange, peer, &packs);
        send.packet = builder_.NewPackets();
        const uint32_t sent = builder_.Add(send);
        for (uint32_t pack : packs) builder_.AddDependency(sent, pack);
      }
      if (!unpacks.empty()) {
        const Step receive = MessageStep(StepKind::kReceive, exchange, peer, &unpacks);
        const uint32_t received = builder_.Add(receive);
        for (uint32_t unpack : unpacks) builder_.AddDependency(unpack, received);
      }
    }
  }

  // Assigns offsets to the pieces: in the order of calls, then of segments, without gaps.
  Step MessageStep(StepKind kind, uint8_t exchange, uint32_t peer, std::vector<uint32_t>* pieces) {
    const auto order_of = [this](uint32_t index) {
      const Step& step = builder_.plan().steps[index];
      return std::tuple(step.call, step.segment, index);
    };
    std::sort(pieces->begin(), pieces->end(),
              [&](uint32_t a, uint32_t b) { return order_of(a) < order_of(b); });
    size_t bytes = table_bytes_;
    for (uint32_t index : *pieces) bytes += builder_.plan().steps[index].region.bytes;
    const Region message = builder_.Reserve(bytes);
    size_t offset = message.offset + table_bytes_;
    for (uint32_t index : *pieces) {
      Step& step = builder_.step(index);
      step.sources = std::exchange(offset, offset + step.region.bytes);
      step.own_source = message.offset + step.call * sizeof(uint32_t);
    }
    return {.kind = kind, .exchange = exchange, .peer = peer, .region = message, .call = kAllCalls};
  }

  PlanBuilder builder_;
  const size_t table_bytes_;
  const uint32_t rank_;
  const uint32_t ranks_;
  std::array<std::vector<Pieces>, kMostExchanges> pieces_;  // by exchange - 1, by peer
};

}  // namespace

GroupPlan MergePlans(std::vector<std::shared_ptr<const Plan>> calls, uint32_t rank,
                     uint32_t ranks) {
  GroupPlan group;
  GroupPlanner planner(calls.size(), rank, ranks);
  for (uint32_t call = 0; call < calls.size(); ++call) {
    group.packets.push_back(planner.AddCall(*calls[call], call));
  }
  group.plan = std::move(planner).Build();
  group.calls = std::move(calls);
  return group;
}

GroupCut FirstCut(std::span<const PlanKey> keys, size_t ranks, uint64_t group_elements,
                  size_t most_dense_bytes) {
  GroupCut cut;
  uint64_t elements = 0;
  size_t dense_bytes = 0;
  const auto is_alone = [&](const PlanKey& key) {
    // The header of a message alone has the weight of its elements.
    return group_elements == 0 || key.is_native || (key.has_two_levels && key.is_weighted) ||
           key.collective == Collective::kAllToAllv || ElementsOf(key, ranks) > group_elements;
  };
  while (cut.count < std::min(keys.size(), kMostCalls)) {
    const PlanKey& key = keys[cut.count];
    if (is_alone(key)) {
      cut.count = std::max<size_t>(cut.count, 1);
      break;
    }
    elements += ElementsOf(key, ranks);
    if (key.codec.is_dense()) {
      dense_bytes += RoundUp(BufferBytesOf(key, ranks), kCacheLine);
    }
    const bool is_full = elements > kCutsPerCall * group_elements || dense_bytes > most_dense_bytes;
    if (is_full && cut.count != 0) break;
    ++cut.count;
    if (is_full) break;
  }
  return cut;
}

}  // namespace onebit
