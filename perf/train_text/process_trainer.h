// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trains as one rank among processes.
#pragma once

#include "perf/common/comm_handles.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/**
 * Runs like Train, as the rank that `comm` has, with losses, bytes and parameters equal to the bit,
 * and returns the same result on all ranks. options.ranks is the number of ranks of `comm`. With
 * options.survive, `comm` is replaced by a communicator of the remaining ranks after a loss.
 *
 * Throws perf::ToolError; is_consequence() is true if another rank is the cause. Destroying `comm`
 * then releases the others.
 */
TrainResult TrainAsProcess(const TrainOptions& options, const Corpus& corpus,
                           const TrainHooks& hooks, perf::CommHandle& comm);

}  // namespace onebit::train
