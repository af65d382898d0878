// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Broadcast and barrier. Every rank sends every other one a header, and the root's carries its
// buffer. The other headers cost n - 1 tiny messages; a one-way tree would save them, but then
// ranks could not learn whether all made the same call.
#include "collectives/algorithms.h"
#include "collectives/plan_builder.h"

namespace onebit {
namespace {

Step MessageStep(StepKind kind, uint32_t peer, Region payload) {
  return {.kind = kind, .peer = peer, .region = payload};
}

}  // namespace

Plan PlanBroadcast(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, Partition(key.count, 1, kernels::kBlockMultiple, 1, 0));
  const ElementRange all{0, key.count};
  const bool is_root = rank == key.root;
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    const Region sent = is_root ? DenseRegion(Space::kInput, all, key.type) : Region{};
    const Region received =
        peer == key.root ? DenseRegion(Space::kOutput, all, key.type) : Region{};
    builder.Add(MessageStep(StepKind::kSend, peer, sent));
    builder.Add(MessageStep(StepKind::kReceive, peer, received));
  }
  if (is_root) {
    builder.Add({.kind = StepKind::kCopy,
                 .elements = all,
                 .region = DenseRegion(Space::kInput, all, key.type)});
  }
  return std::move(builder).Build();
}

Plan PlanBarrier(const PlanKey& key, uint32_t rank, uint32_t ranks) {
  PlanBuilder builder(key, rank, ranks, Partition(0, 1, kernels::kBlockMultiple, 1, 0));
  for (uint32_t k = 1; k < ranks; ++k) {
    const uint32_t peer = (rank + k) % ranks;
    builder.Add(MessageStep(StepKind::kSend, peer, {}));
    builder.Add(MessageStep(StepKind::kReceive, peer, {}));
  }
  return std::move(builder).Build();
}

Plan PlanCopy(const PlanKey& key) {
  PlanBuilder builder(key, 0, 1, Partition(key.count, 1, kernels::kBlockMultiple, 1, 0));
  const ElementRange all{0, key.count};
  builder.Add({.kind = StepKind::kCopy,
               .elements = all,
               .region = DenseRegion(Space::kInput, all, key.type)});
  return std::move(builder).Build();
}

}  // namespace onebit
