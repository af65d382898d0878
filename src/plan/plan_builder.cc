// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_builder.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace onebit {

const char* NameOf(StepKind kind) {
  switch (kind) {
    case StepKind::kStage:
      return "stage";
    case StepKind::kHostSum:
      return "sum";
    case StepKind::kCompress:
      return "compress";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kVerdict:
      return "verdict";
    case StepKind::kSend:
      return "send";
    case StepKind::kReceive:
      return "receive";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kNative:
      return "native";
    case StepKind::kPack:
      return "pack";
    case StepKind::kUnpack:
      return "unpack";
  }
  return "?";
}

PlanBuilder::PlanBuilder(const PlanKey& key, uint32_t rank, uint32_t ranks,
                         const Partition& partition) {
  plan_.key = key;
  plan_.rank = rank;
  plan_.ranks = ranks;
  plan_.partition = partition;
  plan_.tensor_elements = key.count;
}

uint32_t PlanBuilder::Add(const Step& step, std::initializer_list<uint32_t> after) {
  const auto index = static_cast<uint32_t>(plan_.steps.size());
  plan_.steps.push_back(step);
  for (uint32_t before : after) {
    if (before != kNoStep) AddDependency(index, before);
  }
  return index;
}

void PlanBuilder::AddDependency(uint32_t step, uint32_t after) { edges_.emplace_back(after, step); }

Region PlanBuilder::Reserve(size_t bytes) {
  plan_.packet_space_bytes += plan_.key.header_room;
  const Region region{Space::kPackets, plan_.packet_space_bytes, bytes};
  plan_.packet_space_bytes += RoundUp(bytes, kCacheLine);
  return region;
}

std::pair<size_t, size_t> PlanBuilder::Reserve(uint32_t count, size_t bytes) {
  // A stride of 0 means one packet for all chunks, so even empty packets take space.
  const size_t stride = RoundUp(std::max<size_t>(bytes, 1), kCacheLine) + plan_.key.header_room;
  const size_t first = Reserve(0).offset;
  plan_.packet_space_bytes += stride * count;
  return {first, stride};
}

size_t PlanBuilder::ReserveMean(size_t elements) {
  const size_t arrays = plan_.key.codec.is_sparse() ? 2 : 1;
  return Reserve(arrays * elements * sizeof(float)).offset;
}

uint32_t PlanBuilder::NewPackets(uint32_t count) {
  return std::exchange(plan_.packet_count, plan_.packet_count + count);
}

uint32_t PlanBuilder::AddOfInput(Step send) {
  const uint32_t stage = StageInput();
  if (stage == kNoStep) return Add(send);
  send.region.space = Space::kPackets;
  send.region.offset += plan_.steps[stage].region.offset;
  return Add(send, {stage});
}

uint32_t PlanBuilder::StageInput() {
  if (plan_.key.is_staged && stage_ == kNoStep) {
    const ElementRange all = {0, plan_.tensor_elements};
    const size_t bytes = all.count * kernels::BytesOf(plan_.key.type);
    stage_ = Add({.kind = StepKind::kStage, .elements = all, .region = Reserve(bytes)});
  }
  return stage_;
}

void PlanBuilder::SetHosts(const HostMap& hosts) {
  plan_.hosts = hosts.hosts();
  plan_.hosts_digest = hosts.digest();
  if (!hosts.is_even()) plan_.host_sizes = hosts.Sizes();
}

Plan PlanBuilder::Build() && {
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  plan_.successors.reserve(edges_.size());
  size_t edge = 0;
  for (uint32_t index = 0; index < plan_.steps.size(); ++index) {
    Step& step = plan_.steps[index];
    step.first_successor = static_cast<uint32_t>(plan_.successors.size());
    for (; edge < edges_.size() && edges_[edge].first == index; ++edge) {
      plan_.successors.push_back(edges_[edge].second);
      ++plan_.steps[edges_[edge].second].dependency_count;
    }
    step.successor_count = static_cast<uint32_t>(plan_.successors.size()) - step.first_successor;
  }
  for (const Step& step : plan_.steps) {
    if (step.kind == StepKind::kSend) plan_.wire_bytes += kHeaderBytes + step.region.bytes;
    if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
      plan_.exchanges = std::max<uint32_t>(plan_.exchanges, step.exchange);
    }
  }
  IndexReceives(&plan_);
  return std::move(plan_);
}

namespace {

uint64_t NumberOf(uint32_t exchange, uint32_t segment) {
  return uint64_t{exchange} << 32 | segment;
}
uint64_t NumberOf(const Step& message) { return NumberOf(message.exchange, message.segment); }

}  // namespace

uint32_t Plan::ReceiveStep(uint32_t exchange, uint32_t peer, uint32_t segment) const {
  if (peer >= ranks) return kNoStep;
  const std::span<const uint32_t> of_peer =
      std::span(receive_index).subspan(first_receive[peer], MessagesFrom(peer));
  const auto number_of = [this](uint32_t index) { return NumberOf(steps[index]); };
  const uint64_t number = NumberOf(exchange, segment);
  const auto found = std::ranges::lower_bound(of_peer, number, {}, number_of);
  return found == of_peer.end() || number_of(*found) != number ? kNoStep : *found;
}

void IndexReceives(Plan* plan) {
  plan->first_receive.assign(size_t{plan->ranks} + 1, 0);
  plan->receives.clear();
  for (uint32_t index = 0; index < plan->steps.size(); ++index) {
    const Step& step = plan->steps[index];
    if (step.kind != StepKind::kReceive) continue;
    ++plan->first_receive[step.peer + 1];
    plan->receives.push_back(index);
  }
  const auto peer_of = [&](uint32_t index) { return plan->steps[index].peer; };
  std::ranges::sort(plan->receives, {},
                    [&](uint32_t index) { return std::pair(peer_of(index), index); });
  plan->receive_index = plan->receives;
  std::ranges::sort(plan->receive_index, {}, [&](uint32_t index) {
    return std::pair(peer_of(index), NumberOf(plan->steps[index]));
  });
  std::partial_sum(plan->first_receive.begin(), plan->first_receive.end(),
                   plan->first_receive.begin());
}

}  // namespace onebit
