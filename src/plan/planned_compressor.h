// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A compressor with the plan of its calls on the communicator that it was created for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "compressor/compressor.h"
#include "plan/plan.h"

namespace onebit {

// Everything that a rebind changes. Applying it only moves, so it cannot fail.
struct PreparedRebind {
  uint32_t comm_id = 0;
  std::shared_ptr<const Plan> plan;
  bool rolls_forward = false;
  Compressor::ServerResidual server;
  std::optional<Compressor::WorkerResidual> worker;  // none: it stays as it is
  uint64_t lost_elements = 0;
  uint64_t epoch = 0;
  uint64_t commits_since_zero = 0;
  std::optional<ReduceOp> op;
};

// True if ranks hold replicas of the same residual. Calls with this key compare its age.
inline bool HasReplica(const PlanKey& key, const Compressor& compressor) {
  if (!key.codec.has_feedback()) return false;
  return key.is_delta() || (key.is_one_exchange && compressor.server_in(0) != nullptr);
}

// True if ranks make the same draws: every rank rounds for every server, or draws select elements.
// Calls with this key compare the age of the epoch that these depend on.
inline bool HasSharedDraws(const PlanKey& key) {
  if (key.codec.is_sparse()) return key.codec.sparse.is_random;
  return key.codec.rounds_at_random() && key.is_one_exchange;
}

// With stream-ordered calls: the number in device memory whose age (Compressor::AgeOf) the headers
// of a call with this key carry; null if they carry none.
inline const uint64_t* AgeOnDevice(const PlanKey& key, const Compressor& compressor) {
  if (HasReplica(key, compressor)) return compressor.age_on_device();
  return HasSharedDraws(key) ? compressor.epoch_on_device() : nullptr;
}

struct PlannedCompressor {
  Compressor compressor;
  std::shared_ptr<const Plan> plan;
  uint32_t comm_id = 0;
  // If the packets are deltas: plan of a call that compares estimates.
  std::shared_ptr<const Plan> check_plan = {};
  // All-to-all-v: the same as `plan`, writable to set the sizes of each call.
  std::shared_ptr<Plan> sized_plan = {};
  // A rebind whose final gather failed on this rank. Other ranks may have completed it, so the next
  // rebind may have to complete it here, too.
  std::optional<PreparedRebind> prepared = {};

  void Apply(PreparedRebind prepared_rebind);
};

}  // namespace onebit
