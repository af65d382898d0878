// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The selection table: a pure function of the key, so that all ranks choose alike.
#include "collectives/algorithms.h"

namespace onebit {

Plan SelectPlan(const PlanKey& key, uint32_t rank, uint32_t ranks, size_t segment_elements) {
  if (key.collective == Collective::kBarrier) return PlanBarrier(key, rank, ranks);
  if (ranks == 1) return PlanCopy(key);
  switch (key.collective) {
    case Collective::kBarrier:
      break;
    case Collective::kBroadcast:
      return PlanBroadcast(key, rank, ranks);
    case Collective::kAllReduce:
      if (key.is_one_exchange) return PlanAllReduceOneExchange(key, rank, ranks);
      return PlanAllReduceSra(key, rank, ranks, segment_elements);
  }
  return PlanCopy(key);  // unreachable: every collective has returned
}

}  // namespace onebit
