// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The output of a sweep: table on stdout and JSON report. Silent if rank 0 is in another process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/common/comm_stats.h"
#include "perf/common/json_report.h"
#include "perf/common/progress_line.h"
#include "perf/common/report_file.h"
#include "perf/common/row.h"
#include "perf/common/sweep_flags.h"
#include "perf/common/sweep_json.h"

namespace onebit::perf {

class SweepOutput {
 public:
  // Borrows `flags`. Opens the report's file first, if there is to be one: nobody wants to learn
  // after hours that it cannot be written. Throws UsageError.
  SweepOutput(std::string_view tool, bool is_speaker, const SweepFlags& flags);

  // Prints the header. Call it before the functions below.
  void Begin(const RunFacts& facts, std::vector<std::string> arguments);

  // Shows the current step on the terminal.
  void ShowProgress(size_t bytes, std::string_view doing);
  void AddRow(const Row& row);
  // Prints what each rank has sent in the whole run.
  void ReportSent(std::span<const SentTotal> ranks);

  // Ends with the footer; or, after a failure, writes a report of the rows so far with the reason.
  void Finish();
  void Fail(const std::string& error);

  uint64_t wrong() const { return wrong_; }

 private:
  void Write();
  double average_bus_gbps() const {
    return bus_gbps_count_ == 0 ? 0 : bus_gbps_sum_ / bus_gbps_count_;
  }

  const std::string_view tool_;
  const bool is_speaker_;
  const SweepFlags& flags_;
  Progress progress_;
  std::optional<ReportFile> file_;
  std::optional<JsonReport> json_;
  uint64_t wrong_ = 0;  // elements
  double bus_gbps_sum_ = 0;
  int bus_gbps_count_ = 0;
};

}  // namespace onebit::perf
