// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Times one row of another system by the rules of perf/common/row_timer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "perf/baselines/system.h"
#include "perf/common/sweep_flags.h"

namespace onebit::perf {

// Means over ranks and calls, the same on every rank.
struct RowTimes {
  double out_of_place_seconds = 0;
  std::optional<double> in_place_seconds;  // no value: not wanted
  int calls = 0;                           // timed, of each kind
  int64_t untimed_calls = 0;               // all others
};

// `send` holds data; both are as large as the largest message of the sweep, or larger.
RowTimes TimeRow(System& system, size_t count, const SweepFlags& flags, std::span<const float> send,
                 std::span<float> recv);

}  // namespace onebit::perf
