// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// soak: see --help. Exit status: 0 if all was right, 1 for a wrong result, an error or growth, 2
// for bad usage.
#include <optional>
#include <string>

#include <fmt/format.h>

#include "perf/common/procs.h"
#include "perf/common/progress_line.h"
#include "perf/common/report_file.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/studies/soak/soak.h"
#include "perf/studies/soak/soak_options.h"
#include "perf/studies/soak/soak_report.h"

namespace onebit::soak {
namespace {

int Run(const SoakOptions& options) {
  const bool is_speaker = options.ranks.is_speaker();
  std::optional<perf::ReportFile> report;
  // Opened before the run: nobody wants to learn after it that the report cannot be written.
  if (is_speaker && !options.json_path.empty()) report.emplace(options.json_path, "--json");
  perf::Progress progress(is_speaker);
  SoakResult result;
  const auto show = [&](uint64_t rounds, const SoakResult& so_far) {
    result = so_far;
    progress.Show(fmt::format("{} rounds, {} communicators", rounds, so_far.communicators));
  };
  std::string error;
  try {
    result = RunSoak(options, {}, show);
    error = ProblemWithGrowth(result, options.is_memory_limited);
  } catch (const perf::ToolError& failure) {
    if (report) report->Write(ToJson(options, result, failure.what()));
    throw;
  }
  if (!is_speaker) return perf::kExitOk;
  progress.Clear();
  fmt::print("{}", Summarize(options, result));
  if (report) report->Write(ToJson(options, result, error));
  if (!error.empty()) throw perf::ToolError(error);
  return perf::kExitOk;
}

}  // namespace
}  // namespace onebit::soak

int main(int argc, char** argv) {
  using namespace onebit;
  return perf::RunTool("soak", perf::LaunchedRank().value_or(0) == 0, [&] {
    const std::optional<soak::SoakOptions> options = soak::ParseOptions(argc, argv);
    if (!options) return perf::kExitOk;
    if (options->ranks.procs > 0) {
      return perf::LaunchSelf("soak", options->ranks.procs, argc, argv);
    }
    return soak::Run(*options);
  });
}
