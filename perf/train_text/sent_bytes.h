// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that the steps of a run must have sent, by formula, for comparison with the counters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onebit/onebit.h"
#include "perf/common/wire_bounds.h"
#include "perf/train_text/model.h"
#include "perf/train_text/outer_optimizer.h"
#include "perf/train_text/train_options.h"

namespace onebit::train {

/** Counts of allreduces of all parameters. */
struct SentCalls {
  uint64_t dense = 0;  // of gradients in their type
  uint64_t compressed = 0;
  uint64_t messages = 0;  // of all of them, by one rank
};

/**
 * Returns how the library cuts a compressed call of all parameters into packets. Creates a
 * compressor, so all ranks must call it. Throws perf::ToolError.
 */
perf::WireShape CompressedShape(const TrainOptions& options, onebitComm_t comm,
                                const ModelLayout& layout);

/**
 * Returns the bytes that rank 0 sends in `calls`. How dense calls were segmented follows from the
 * number of messages; the rest is arithmetic.
 */
uint64_t ExpectedBytes(const TrainOptions& options, const perf::WireShape& compressed,
                       const SentCalls& calls);

/**
 * Returns the bytes that rank 0 of `ranks` sends in the averages of an outer optimizer, without
 * those of its flush. What they are without a codec follows from the flush, which sends the same
 * messages.
 */
uint64_t ExpectedOuterBytes(const TrainOptions& options, int ranks, const OuterOptimizer& outer);

}  // namespace onebit::train
