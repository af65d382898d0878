// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Options of optimizers and of what they send.
#pragma once

#include <CLI/CLI.hpp>

#include "perf/train_text/options.h"

namespace onebit::train {

void AddOptimizerOptions(CLI::App& app, TrainOptions& options);
void AddCompressionOptions(CLI::App& app, TrainOptions& options);

/** Behind the parsing: defaults that depend on the optimizer. Throws CLI::ValidationError if an
 * option has no effect with what the others say. */
void CompleteOptimizerOptions(const CLI::App& app, TrainOptions& options);

}  // namespace onebit::train
