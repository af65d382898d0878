// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares rates, decays and parameters between ranks. They do not shape calls, so where they
// differ replicas would drift apart without an error.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "onebit/onebit.h"
#include "optim/options.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// The arguments of a step that must be equal on all ranks.
struct StepNumbers {
  double learning_rate = 0;
  double grad_scale = 1;
  double max_grad_norm = 0;  // 0: no norm is measured
};

// A small allreduce once in so many steps costs little, and limits how long ranks can drift apart.
inline constexpr uint32_t kStepsBetweenComparisons = 64;

// kMismatch if ranks differ; the text names the value, two ranks and what they have. Collective
// over `comm`, where this is rank `rank`; every rank decides alike, and the communicator
// stays healthy. `parameter_digests` has one entry per segment, or none if ranks need
// not have the same parameters now.
Status CompareStep(onebitComm_t comm, int rank, const StepNumbers& numbers, const Options& options,
                   const SegmentTable& table, const std::vector<uint64_t>& parameter_digests);

}  // namespace onebit::optim
