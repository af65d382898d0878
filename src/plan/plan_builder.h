// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Collects steps and dependencies of a plan and builds its final form.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "plan/plan.h"
#include "topology/host_map.h"

namespace onebit {

// The checksum of a rank's estimate, in the form of a packet: eight arbitrary bytes.
inline constexpr PacketShape kDriftCheckShape{.scale_count = 0, .element_count = 64};

class PlanBuilder {
 public:
  PlanBuilder(const PlanKey& key, uint32_t rank, uint32_t ranks, const Partition& partition);

  // Adds a step that waits for `after` (kNoStep entries are ignored); returns its index.
  uint32_t Add(const Step& step, std::initializer_list<uint32_t> after = {});
  // Adds a send step of elements of the input. If the key asks for it, the whole input is staged
  // once, and sent from there. StageInput returns the step that does so; kNoStep: none.
  uint32_t AddOfInput(Step send);
  uint32_t StageInput();
  // Makes `step` wait for `after` as well.
  void AddDependency(uint32_t step, uint32_t after);

  // Allocates a packet or dense piece in the packet space, aligned to a cache line, behind room for
  // a header if the key asks for it.
  Region Reserve(size_t bytes);
  // Allocates several. Returns the offset of the first and the stride between neighbours.
  std::pair<size_t, size_t> Reserve(uint32_t count, size_t bytes);
  // Allocates one per rank.
  std::pair<size_t, size_t> ReservePerRank(size_t bytes) { return Reserve(plan_.ranks, bytes); }
  // Allocates for the weighted mean of so many elements in fp32, and for one decoded packet if it
  // can be decoded as a whole only. Returns its offset.
  size_t ReserveMean(size_t elements);
  uint32_t NewPackets(uint32_t count = 1);
  // Tells the plan the hosts of the ranks, on which its result depends.
  void SetHosts(const HostMap& hosts);

  Plan Build() &&;

  const Plan& plan() const { return plan_; }
  // Access to a step that was added.
  Step& step(uint32_t index) { return plan_.steps[index]; }
  // Access to everything but steps and dependencies.
  Plan& plan() { return plan_; }

 private:
  Plan plan_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // first must be done before second
  uint32_t stage_ = kNoStep;
};

// Sets the tables of a plan that tell its receive steps.
void IndexReceives(Plan* plan);

}  // namespace onebit
