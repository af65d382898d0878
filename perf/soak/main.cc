// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// soak: see --help. Exit status: 0 all was right, 1 a wrong result, an error or growth, 2 bad
// usage.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "perf/common/error.h"
#include "perf/common/procs.h"
#include "perf/common/progress.h"
#include "perf/common/report_file.h"
#include "perf/soak/options.h"
#include "perf/soak/report.h"
#include "perf/soak/soak.h"

namespace onebit::soak {
namespace {

int RunTool(const SoakOptions& options) {
  const bool is_speaker = options.ranks.is_speaker();
  std::optional<perf::ReportFile> report;
  // Before the run: nobody wants to learn after it that the report cannot be written.
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
  bool is_speaker = true;
  try {
    const std::optional<soak::SoakOptions> options = soak::ParseOptions(argc, argv);
    if (!options) return perf::kExitOk;
    is_speaker = options->ranks.is_speaker();
    if (options->ranks.procs > 0) {
      return perf::LaunchSelf("soak", options->ranks.procs, argc, argv);
    }
    return soak::RunTool(*options);
  } catch (const perf::UsageError& error) {
    // Of ranks that were started with the same command line only the first says so.
    if (perf::LaunchedRank().value_or(0) == 0) {
      fmt::print(stderr, "soak: {}\nRun soak --help for the options.\n", error.what());
    }
    return perf::kExitUsage;
  } catch (const perf::ToolError& error) {
    if (is_speaker || !error.is_consequence()) fmt::print(stderr, "soak: {}\n", error.what());
    return perf::kExitFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "soak: {}\n", error.what());
    return perf::kExitFailed;
  }
}
