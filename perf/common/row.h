// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The result of one row of a sweep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "onebit/onebit.h"
#include "perf/common/bandwidth.h"

namespace onebit::perf {

struct Measurement {
  std::optional<double> seconds;  // per call, mean over ranks; no value: not timed
  Bandwidth bandwidth;
  std::optional<uint64_t> wrong;  // elements, all ranks together; no value: unchecked
};

struct Row {
  size_t bytes = 0;
  size_t count = 0;
  onebitDataType_t type = onebitFloat32;
  std::optional<onebitRedOp_t> op = onebitSum;  // none: the collective reduces nothing
  int root = -1;                                // -1: the collective has none
  int iterations = 0;                           // timed calls out of place
  int64_t untimed_calls = 0;                    // other calls in the row's mode, without warm-up
  Measurement out_of_place;
  Measurement in_place;
  // Bytes sent per rank and call, the largest over ranks: as counted, and by formula. No value: not
  // counted.
  std::optional<uint64_t> wire_bytes;
  std::optional<uint64_t> wire_bytes_bound;
  std::optional<double> ratio;  // dense bandwidth-optimal bytes over wire bytes; none without wire
  int levels = 1;               // of a call: 2 inside hosts and between them
  double rel_error = 0;         // of the first call from fresh residuals, in the 2-norm
  std::optional<double> speedup_vs_dense;  // out of place; none when dense itself is measured
  std::string problem;                     // the first thing that was wrong; empty if nothing was
};

}  // namespace onebit::perf
