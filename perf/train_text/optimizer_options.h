// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Options of optimizers and of what they send.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "perf/train_text/train_options.h"

namespace onebit::train {

void AddOptimizerOptions(CLI::App& app, TrainOptions& options);
void AddCompressionOptions(CLI::App& app, TrainOptions& options);

/** Throws perf::UsageError if one of `flags` was given; `reason` is why it has no effect. */
void RequireUnused(const CLI::App& app, const std::vector<const char*>& flags,
                   const std::string& reason);

/**
 * Runs after parsing: sets defaults that depend on the optimizer, and throws perf::UsageError
 * if an option has no effect in combination with the others.
 */
void CompleteOptimizerOptions(const CLI::App& app, TrainOptions& options);

}  // namespace onebit::train
