// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Times one row: out of place, then in place. Compressed modes take turns with the dense
// collective, so both see the same load on a shared machine.
#pragma once

#include <cstdint>
#include <optional>

#include "perf/common/collective.h"
#include "perf/common/rank_state.h"
#include "perf/common/sweep_options.h"

namespace onebit::perf {

// Means over calls, of the ranks that the options ask for.
struct RowTimes {
  double out_of_place_seconds = 0;
  std::optional<double> in_place_seconds;  // no value: not wanted
  // Out of place; equals out_of_place_seconds in mode dense. No value: not wanted.
  std::optional<double> dense_seconds;
  int calls = 0;              // timed, of each kind
  int64_t untimed_calls = 0;  // other calls in the row's mode
  // Bytes sent by one call of the row's mode, the largest over ranks, as the transport counted
  // them.
  uint64_t wire_bytes = 0;
  uint64_t messages = 0;
  bool is_native = false;  // calls were the transport's own, which counts nothing
  bool has_two_levels = false;
};

// Returns the same on every process. It expects data in the send buffers and a prepared row, and
// leaves both usable, with other residuals.
RowTimes TimeRow(const Collective& collective, const Case& row, const Options& options,
                 Ranks& ranks);

}  // namespace onebit::perf
