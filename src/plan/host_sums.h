// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans of reductions in two levels share this part: the ranks of a host add up what they have for
// a chunk, and one of them compresses the sum.
#pragma once

#include "plan/plan_builder.h"
#include "topology/host_map.h"

namespace onebit {

// A packet, or elements, that a step leaves for a message.
struct HostPart {
  uint32_t step = kNoStep;
  Region region;
  uint32_t packet = kNoPacket;
  size_t weight = 0;  // of a host, in the packet space
};

class HostSums {
 public:
  // All three must outlive this object.
  HostSums(PlanBuilder& builder, const HostMap& hosts, uint32_t rank)
      : builder_(builder),
        ranks_(hosts.RanksOn(hosts.HostOf(rank))),
        local_rank_(hosts.LocalRankOf(rank)) {}

  // Receives the elements of `sum` from the other ranks of this host in exchange 1, as messages of
  // this segment number, and adds them up: dense in the tensor's type, to `dense`; otherwise their
  // mean in fp32.
  HostPart AddSum(Step sum, uint16_t segment, const Region& dense);
  // Compresses elements of the input, or such a mean if there is one.
  HostPart AddCompress(Step compress, const HostPart& mean);

 private:
  PlanBuilder& builder_;
  const std::span<const uint32_t> ranks_;  // of this host
  const uint32_t local_rank_;
};

}  // namespace onebit
