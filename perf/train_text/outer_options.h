// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The option --outer.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "perf/train_text/train_options.h"

namespace onebit::train {

void AddOuterOption(CLI::App& app, TrainOptions& options);

/**
 * Runs after parsing, before the codec is completed. Throws perf::UsageError if --outer does not go
 * with the other options.
 */
void CheckOuter(const CLI::App& app, const TrainOptions& options);

/** The mode of averages for which --mode was not given: 4 bits lose nothing in them. */
onebitMode_t DefaultOuterMode(onebitCodec_t codec);

/** Returns what to say about a run whose loss is going to be worse than it could be. */
std::optional<std::string> OuterWarning(const TrainOptions& options);

/** Returns the text after --outer, complete. */
std::string OuterText(const OuterRule& rule);

}  // namespace onebit::train
