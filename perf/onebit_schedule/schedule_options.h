// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The options of onebit_schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onebit/schedule.h"
#include "perf/common/rate_schedule.h"

namespace onebit::schedule {

struct ScheduleOptions {
  uint64_t first = 0;
  uint64_t last = 0;
  bool is_volume = false;  // no rows of steps
  onebitPolicyConfig_t policy = ONEBIT_POLICY_CONFIG_INIT;
  perf::RateSchedule rates;
  std::string decay = "constant";  // as on the command line
  int dense_bits = 16;
  std::string json_path;  // empty: none
};

// Names as on the command line.
const char* NameOfAlgorithm(int32_t algorithm);
const char* NameOfVariant(int32_t variant);

// Prints help to stdout and returns no value if asked for it; throws perf::UsageError if the
// command line is wrong.
std::optional<ScheduleOptions> ParseOptions(int argc, const char* const* argv);

}  // namespace onebit::schedule
