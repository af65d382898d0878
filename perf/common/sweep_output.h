// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What one process says of a sweep, on stdout and as JSON: everything, or nothing where rank 0 is
// elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/common/comm_stats.h"
#include "perf/common/host.h"
#include "perf/common/json_report.h"
#include "perf/common/options.h"
#include "perf/common/report_file.h"

namespace onebit::perf {

class SweepOutput {
 public:
  // Begins: prints the header. Throws UsageError when the report's file cannot be made.
  SweepOutput(const Options& options, std::string_view tool, std::span<const RankPlace> places,
              std::vector<std::string> arguments);

  // No value where no report is wanted of this process.
  std::optional<JsonReport>& json() { return json_; }

  // What each rank has sent in the whole run.
  void ReportSent(std::span<const SentTotal> ranks);
  void Finish(uint64_t wrong, double bus_gbps);
  // The report has the rows so far and the reason why there are no more.
  void Fail(const std::string& error, uint64_t wrong, double bus_gbps);

 private:
  void Write(uint64_t wrong, double bus_gbps);

  const std::string_view tool_;
  const bool is_speaker_;
  std::optional<ReportFile> file_;
  std::optional<JsonReport> json_;
};

}  // namespace onebit::perf
