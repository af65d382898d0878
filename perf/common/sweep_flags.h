// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The flags of every program that sweeps over message sizes, whatever system it measures: those of
// nccl-tests, with their defaults, and some that keep a sweep over a slow link short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "perf/common/message_sizes.h"
#include "perf/common/rank_time.h"

namespace CLI {
class App;
}

namespace onebit::perf {

struct SweepFlags {
  SweepRange sweep;
  // Size of each buffer; 0: that of the largest message. Its size determines how a buffer is placed
  // in memory, so it should be the same in sweeps that are compared.
  size_t buffer_bytes = 0;
  int iterations = 20;
  // Time for the timed calls of a row. If set, `iterations` is the maximum, not the number of
  // calls.
  std::optional<double> row_seconds;
  int cycles = 1;                        // times that the sweep is repeated
  RankTime rank_time = RankTime::kMean;  // of a row
  int warmup_iterations = 1;             // calls per size of WarmupSizes, once before the sweep
  int checks = 1;                        // check passes per row, 0: none
  bool is_in_place_timed = true;
  std::string json_path;  // empty: no report

  size_t AllocatedBytes() const { return std::max(buffer_bytes, sweep.max_bytes); }
};

// Declares the flags; `flags` must outlive the parsing. `check_help` says what -c compares with.
void AddSweepFlags(CLI::App& app, const std::string& check_help, SweepFlags* flags);

// Checks combinations of flags. Throws UsageError.
void CheckSweepFlags(const SweepFlags& flags);

}  // namespace onebit::perf
