// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebit_schedule: see --help. Exit status: 0 on success, 1 for an error of the library or the
// system, 2 for bad usage.
#include <optional>

#include <fmt/format.h>

#include "perf/common/report_file.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/onebit_schedule/policy_run.h"
#include "perf/onebit_schedule/schedule_options.h"
#include "perf/onebit_schedule/schedule_report.h"

namespace onebit::schedule {
namespace {

int Run(const ScheduleOptions& options) {
  const Steps steps = RunSteps(options.policy, options.rates, options.first, options.last);
  std::optional<perf::ReportFile> report;
  if (!options.json_path.empty()) report.emplace(options.json_path, "--json");
  if (!options.is_volume) fmt::print("{}", RowsText(steps));
  fmt::print("{}", VolumeText(steps, options.dense_bits));
  if (report) report->Write(ToJson(options, steps));
  return perf::kExitOk;
}

}  // namespace
}  // namespace onebit::schedule

int main(int argc, char** argv) {
  using namespace onebit;
  return perf::RunTool("onebit_schedule", true, [&] {
    const std::optional<schedule::ScheduleOptions> options = schedule::ParseOptions(argc, argv);
    return options ? schedule::Run(*options) : perf::kExitOk;
  });
}
