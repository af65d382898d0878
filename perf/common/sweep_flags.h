// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Flags of every program that sweeps over message sizes, whatever system it measures: those of
// nccl-tests, with their defaults, and what keeps a sweep over a slow link short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "perf/common/sizes.h"

namespace CLI {
class App;
}

namespace onebit::perf {

struct SweepFlags {
  SweepRange sweep;
  // Of each buffer, 0: the largest message. How a buffer lies in memory depends on its size; where
  // several sweeps are compared it should be the same in all.
  size_t buffer_bytes = 0;
  int iterations = 20;
  // Time for the timed calls of a row; then `iterations` is the most calls, not their number.
  std::optional<double> row_seconds;
  int warmup_iterations = 1;  // calls per size of WarmupSizes, once before the sweep
  int checks = 1;             // check passes per row, 0: none
  bool is_in_place_timed = true;
  std::string json_path;  // empty: no report

  size_t AllocatedBytes() const { return std::max(buffer_bytes, sweep.max_bytes); }
};

// Declares them; `flags` outlives the parsing. `check_help` says what -c compares with.
void AddSweepFlags(CLI::App& app, const std::string& check_help, SweepFlags* flags);

// What no single flag can see. Throws UsageError.
void CheckSweepFlags(const SweepFlags& flags);

}  // namespace onebit::perf
