// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The configuration of a run, as a report shows it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "perf/train_text/train_options.h"

namespace onebit::train {

/** The model and the optimizer, in half a line each. */
std::string DescribeModel(const ModelShape& shape);
std::string DescribeOptimizer(const TrainOptions& options);

/**
 * Lists everything that affects the result, by option name. Options of only some optimizers appear
 * if they were set or depend on the run.
 */
nlohmann::ordered_json ConfigJson(const TrainOptions& options);

}  // namespace onebit::train
