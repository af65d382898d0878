// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trains as one rank among processes.
#pragma once

#include "perf/common/handles.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/**
 * Runs like Train, with losses, bytes and parameters that are the same to the bit, as the rank that
 * `comm` says, and returns the same result on all. options.ranks is the number of ranks of `comm`,
 * which with options.survive is replaced by that of the ranks that remain once one was lost.
 *
 * Throws perf::ToolError; is_consequence() where another rank is the cause. Whoever destroys `comm`
 * then releases the others.
 */
TrainResult TrainAsProcess(const TrainOptions& options, const Corpus& corpus,
                           const TrainHooks& hooks, perf::CommHandle& comm);

}  // namespace onebit::train
