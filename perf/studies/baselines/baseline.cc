// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/studies/baselines/baseline.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/sweep_driver.h"
#include "perf/common/sweep_text.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/studies/baselines/system_all_reduce.h"

namespace onebit::perf {
namespace {

// Only one rank complains of a command line, which is the same on all. Must work before the system
// has started.
bool IsFirstRank(const Baseline& baseline) {
  for (const char* name : baseline.rank_variables) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::string_view(text) == "0";
  }
  return true;
}

bool ParseFlags(int argc, const char* const* argv, const Baseline& baseline, SweepFlags* flags) {
  CLI::App app{std::string(baseline.description), std::string(baseline.tool)};
  app.get_formatter()->column_width(38);
  AddSweepFlags(app, std::string(baseline.check_help), flags);
  if (baseline.add_flags) baseline.add_flags(app);
  if (!ParseCommandLine(app, argc, argv, IsFirstRank(baseline))) return false;
  CheckSweepFlags(*flags);
  return true;
}

RunFacts FactsOf(const System& system, const SweepFlags& flags, std::span<const RankInfo> infos) {
  RunFacts facts;
  facts.system = system.version();
  facts.version = {{"system", facts.system}};
  facts.config = ConfigJson(flags, 1);
  facts.config["devices"] = DevicesJson(infos);
  facts.rows = {.mode = system.mode(),
                .transport = system.transport(),
                .ranks = infos.size(),
                .is_dense = system.is_dense()};
  facts.devices = ProcessesText(infos);
  return facts;
}

int Measure(const Options& options, std::string_view tool, std::vector<std::string> arguments,
            System& system, SweepOutput& output) {
  if (options.sweep.max_bytes / sizeof(float) > system.max_count()) {
    throw UsageError(fmt::format("-e {}: a call of this system takes {} elements at most",
                                 options.sweep.max_bytes, system.max_count()));
  }
  Ranks ranks(system, options.sweep.max_bytes, options.AllocatedBytes());
  output.Begin(FactsOf(system, options, ranks.GatherInfo()), std::move(arguments));
  return RunSweep(SystemAllReduce(tool, system), options, ranks, output);
}

}  // namespace

int RunBaseline(int argc, const char* const* argv, const Baseline& baseline) {
  const std::string_view tool = baseline.tool;
  const bool is_first = IsFirstRank(baseline);
  return RunTool(tool, is_first, [&] {
    Options options;
    if (!ParseFlags(argc, argv, baseline, &options)) return kExitOk;
    SweepOutput first_output(tool, is_first, options);
    SweepOutput no_output(tool, false, options);
    const std::unique_ptr<System> system = baseline.start();
    bool has_ended = false;
    // Reports errors before the system ends: once it aborts, nothing can be printed.
    const int status = RunTool(tool, is_first, [&] {
      const int result = Measure(options, tool, {argv, argv + argc}, *system,
                                 system->rank() == 0 ? first_output : no_output);
      has_ended = true;
      return result;
    });
    // A usage error occurs on all ranks. After anything else the others may wait for this one.
    if (!has_ended && status != kExitUsage) system->Abort(status);
    system->End(status);
    return status;
  });
}

}  // namespace onebit::perf
