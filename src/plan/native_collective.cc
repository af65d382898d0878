// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A collective of the transport itself. It compares no headers, so these go first, from every rank
// to every other: differing calls are noticed, and no rank starts a collective that others do not.
// Over a stream-ordered transport they are empty, so they are not sent: there the control channel
// compares the calls.
#include "plan/algorithms.h"
#include "plan/plan_builder.h"

namespace onebit {

Plan PlanNative(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, Partition(0, 1, kernels::kBlockMultiple, 1, 0));
  const bool has_parts =
      key.collective == Collective::kReduceScatter || key.collective == Collective::kAllGather;
  if (has_parts) builder.plan().tensor_elements = key.count * ranks;
  const uint32_t native = builder.Add({.kind = StepKind::kNative, .elements = {0, key.count}});
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    builder.Add({.kind = StepKind::kSend, .peer = peer});
    builder.AddDependency(native, builder.Add({.kind = StepKind::kReceive, .peer = peer}));
  }
  return std::move(builder).Build();
}

}  // namespace onebit
