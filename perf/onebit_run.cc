// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebit_run -n N PROGRAM ...: runs the ranks of a job on this host. Exit status: that of the first
// rank that failed; 2 for bad usage, 126 if PROGRAM cannot be executed, 127 if it does not exist.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/preload_path.h"
#include "perf/common/rank_launcher.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "plugins/common/abandoned_segments.h"

namespace onebit::perf {
namespace {

constexpr double kMaxGraceSeconds = 86400;

// PROGRAM is not an option, so CLI11's usage line would omit it.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: onebit_run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

int Run(int argc, const char* const* argv) {
  LaunchOptions options;
  options.tool = "onebit_run";
  bool is_preloaded = false;
  CLI::App app(
      "Starts PROGRAM as N processes on this host, the ranks of one job. Each finds RANK,\n"
      "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and ONEBIT_RENDEZVOUS in its environment, which\n"
      "is all that onebitCommInitEnv needs, and MASTER_ADDR and MASTER_PORT for PyTorch's\n"
      "init_process_group. When one fails, so does the job: the others are ended, and its exit\n"
      "status is that of onebit_run.",
      options.tool);
  app.formatter(std::make_shared<Help>());
  app.add_option("-n,--np", options.processes, "processes to start")
      ->required()
      ->check(CLI::Range(1, kMaxProcesses))
      ->type_name("N");
  app.add_flag("--tag-output", options.is_output_tagged,
               "begin every line of output with its rank, \"[3] \"");
  app.add_flag("--preload", is_preloaded,
               "put libonebit-nccl-preload.so in front of PROGRAM's NCCL, by LD_PRELOAD of the\n"
               "ranks; ONEBIT_NCCL_RULES tells it what to compress (docs/preload.md)");
  app.add_option("--grace", options.grace_seconds,
                 "time for the others to end by themselves when one has failed")
      ->check(Number(fmt::format("in 0 ... {}", kMaxGraceSeconds),
                     [](double seconds) { return seconds >= 0 && seconds <= kMaxGraceSeconds; }))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.prefix_command();
  if (!ParseCommandLine(app, argc, argv)) return kExitOk;
  options.arguments = app.remaining();
  if (!options.arguments.empty() && options.arguments.front() == "--") {
    options.arguments.erase(options.arguments.begin());
  }
  if (options.arguments.empty()) throw UsageError("there is no program to start");
  options.program = options.arguments.front();
  // A program's name does not begin with a dash: this is a misspelt option.
  if (options.program.starts_with('-')) {
    throw UsageError(fmt::format("there is no option {}", options.program));
  }
  if (is_preloaded) options.preload = PreloadPath();
  const int status = Launch(options);
  plugin::RemoveAbandonedSegments();
  return status;
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  return RunTool("onebit_run", true, [&] { return Run(argc, argv); });
}
