// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a report says of the configuration of a run.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "perf/train_text/options.h"

namespace onebit::train {

/** The optimizer, in half a line. */
std::string DescribeOptimizer(const TrainOptions& options);

/** Everything that has an effect on the result, by the names of the options. What only some
 * optimizers have is there if it was set or depends on the run. */
nlohmann::ordered_json ConfigJson(const TrainOptions& options);

}  // namespace onebit::train
