// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/packet_needs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "collectives/algorithms.h"
#include "collectives/group_plan.h"

namespace onebit {

size_t PacketNeeds::PacketBytes(std::span<const Engine::Request> requests) {
  size_t of_pairs = 0;  // differ from call to call of the same key, which is alone in its group
  keys_.clear();
  for (const Engine::Request& request : requests) {
    keys_.push_back(request.key);
    if (request.key.collective != Collective::kAllToAllv || request.compressor == nullptr) continue;
    of_pairs = std::max(of_pairs, PacketBytesOfPairs(*request.compressor->plan, request.pairs));
  }
  for (Known& known : known_) {
    if (known.keys != keys_) continue;
    known.last_use = ++uses_;
    return std::max(known.bytes, of_pairs);
  }
  Known found{.keys = keys_, .bytes = Plan(requests), .last_use = ++uses_};
  const size_t bytes = found.bytes;
  if (known_.size() < kMostKnown) {
    known_.push_back(std::move(found));
  } else {
    *std::ranges::min_element(known_, {}, &Known::last_use) = std::move(found);
  }
  return std::max(bytes, of_pairs);
}

// As Engine::PrepareGroup does.
size_t PacketNeeds::Plan(std::span<const Engine::Request> requests) const {
  const auto ranks = static_cast<size_t>(comm_.ranks());
  const uint64_t group_elements = ranks == 1 ? 0 : comm_.options().group_elements;
  size_t most = 0;
  for (size_t begin = 0; begin < requests.size();) {
    const size_t count = FirstCut(std::span(keys_).subspan(begin), ranks, group_elements).count;
    std::vector<std::shared_ptr<const onebit::Plan>> plans;
    for (size_t i = 0; i < count; ++i) plans.push_back(PlanOf(requests[begin + i]));
    const size_t bytes = count == 1
                             ? plans[0]->packet_space_bytes
                             : MergePlans(std::move(plans), static_cast<uint32_t>(comm_.rank()),
                                          static_cast<uint32_t>(ranks))
                                   .plan.packet_space_bytes;
    most = std::max(most, bytes);
    begin += count;
  }
  return most;
}

std::shared_ptr<const onebit::Plan> PacketNeeds::PlanOf(const Engine::Request& request) const {
  if (request.compressor != nullptr && request.key.collective != Collective::kAllToAllv) {
    return request.key.has_drift_check ? request.compressor->check_plan : request.compressor->plan;
  }
  return std::make_shared<const onebit::Plan>(
      SelectPlan(request.key, static_cast<uint32_t>(comm_.rank()),
                 static_cast<uint32_t>(comm_.ranks()), comm_.options().segment_elements));
}

}  // namespace onebit
