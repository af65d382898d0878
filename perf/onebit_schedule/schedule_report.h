// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A run of steps as text and as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "perf/onebit_schedule/policy_run.h"
#include "perf/onebit_schedule/schedule_options.h"

namespace onebit::schedule {

// Prints ten steps a row.
std::string RowsText(const Steps& steps);

// Prints one line: counts of all kinds, bits, rounds saved, reduction.
std::string VolumeText(const Steps& steps, int dense_bits);

nlohmann::ordered_json ToJson(const ScheduleOptions& options, const Steps& steps);

}  // namespace onebit::schedule
