// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A compressor together with the communicator it was made for: the plan of its calls there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/plan.h"
#include "compressor/compressor.h"

namespace onebit {

// Everything that a rebind changes, ready to be put in place by moves alone.
struct PreparedRebind {
  uint32_t comm_id = 0;
  std::shared_ptr<const Plan> plan;
  bool rolls_forward = false;
  Compressor::ServerResidual server;
  uint64_t lost_elements = 0;
  uint64_t epoch = 0;
  uint64_t commits_since_zero = 0;
  std::optional<ReduceOp> op;
};

// Whether every rank keeps the same of the compressor's residuals, which calls of this key compare.
inline bool HasReplica(const PlanKey& key, const Compressor& compressor) {
  if (key.codec != CodecKind::kEf) return false;
  return key.collective == Collective::kAllGather ||
         (key.is_one_exchange && compressor.server_in(0) != nullptr);
}

struct PlannedCompressor {
  Compressor compressor;
  std::shared_ptr<const Plan> plan;
  uint32_t comm_id = 0;
  // All-gather with error feedback: the plan of a call that compares what ranks hold.
  std::shared_ptr<const Plan> check_plan = {};
  // All-to-all-v: `plan`, which takes on the sizes of each call.
  std::shared_ptr<Plan> sized_plan = {};
  // A rebind that this rank does not know to have succeeded, because the last word of it failed.
  // Other ranks may have gone over; then the next rebind begins from there.
  std::optional<PreparedRebind> prepared = {};

  // Where this rank's part of the server residual lies in the tensor; empty if there is none.
  ElementRange ServedRange() const;
  void Apply(PreparedRebind prepared_rebind);
};

}  // namespace onebit
