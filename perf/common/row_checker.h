// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Checks one row against the scalar reference, bit for bit, out of place and in place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "perf/common/collective.h"
#include "perf/common/rank_state.h"
#include "perf/common/sweep_options.h"

namespace onebit::perf {

struct CheckResult {
  uint64_t wrong_out_of_place = 0;         // elements, over all ranks and calls
  std::optional<uint64_t> wrong_in_place;  // no value: it cannot be called in place
  std::string problem;  // the first wrong element, in words; empty if there is none
};

// The send buffers hold SeededInput of this seed outside CheckRow.
inline constexpr uint64_t kTimedSeed = 0;

// A pass makes as many calls as the collective wants checked, from fresh residuals. Every rank's
// bytes must equal the reference, so ranks that are right are equal. Checks use other seeds; at the
// end the send buffers hold the usual one again. Only the process of rank 0 runs the reference and
// has a result; elsewhere it is empty.
CheckResult CheckRow(const Collective& collective, const Case& row, const Options& options,
                     Ranks& ranks);

// Makes the first call from fresh residuals on the data in the send buffers. Returns its error
// relative to the exact result, in the 2-norm, on every process.
double RelativeErrorOfFirstCall(const Collective& collective, const Case& row, Ranks& ranks);

}  // namespace onebit::perf
