// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Times one row: out of place, then in place; in compressed modes in turns with the dense
// collective, so that both meet the same weather on a shared machine.
#pragma once

#include <cstdint>
#include <optional>

#include "perf/common/collective.h"
#include "perf/common/options.h"
#include "perf/common/rank_state.h"

namespace onebit::perf {

// Means over ranks and calls.
struct RowTimes {
  double out_of_place_seconds = 0;
  std::optional<double> in_place_seconds;  // no value: not wanted
  // Out of place; equals out_of_place_seconds in mode dense. No value: not wanted.
  std::optional<double> dense_seconds;
  int calls = 0;              // timed, of each kind
  int64_t untimed_calls = 0;  // and those in the row's mode besides the ones timed out of place
  // Sent by one call of the row's mode, largest over ranks, as the transport counted it.
  uint64_t wire_bytes = 0;
  uint64_t messages = 0;
};

// The same on every process. The send buffers hold data and the compressors of `ranks` are those of
// the row. Leaves both as usable as before, with other residuals.
RowTimes TimeRow(const Collective& collective, const Case& row, const Options& options,
                 Ranks& ranks);

}  // namespace onebit::perf
