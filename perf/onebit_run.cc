// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebit_run -n N PROGRAM ...: the ranks of a job on this host. Exit status: that of the first rank
// that failed; 2 bad usage, 126 PROGRAM cannot be executed, 127 there is none.
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/error.h"
#include "perf/common/launcher.h"

namespace onebit::perf {
namespace {

constexpr double kMaxGraceSeconds = 86400;

CLI::Validator Seconds() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double seconds = -1;
        const bool is_fine = CLI::detail::lexical_cast(text, seconds) && std::isfinite(seconds) &&
                             seconds >= 0 && seconds <= kMaxGraceSeconds;
        return is_fine ? "" : fmt::format("{} is not in 0 ... {}", text, kMaxGraceSeconds);
      },
      "");
}

// The command to start is no option, so CLI11 does not know of it.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: onebit_run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

int Run(int argc, const char* const* argv) {
  LaunchOptions options;
  options.tool = "onebit_run";
  CLI::App app(
      "Starts PROGRAM as N processes on this host, the ranks of one job. Each finds RANK,\n"
      "WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and ONEBIT_RENDEZVOUS in its environment, which\n"
      "is all that onebitCommInitEnv needs. When one fails, so does the job: the others are "
      "ended,\n"
      "and its exit status is that of onebit_run.",
      options.tool);
  app.formatter(std::make_shared<Help>());
  app.add_option("-n,--np", options.processes, "processes to start")
      ->required()
      ->check(CLI::Range(1, kMaxProcesses))
      ->type_name("N");
  app.add_flag("--tag-output", options.is_output_tagged,
               "begin every line of output with its rank, \"[3] \"");
  app.add_option("--grace", options.grace_seconds,
                 "time for the others to end by themselves when one has failed")
      ->check(Seconds())
      ->type_name("SECONDS")
      ->capture_default_str();
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  options.arguments = app.remaining();
  if (!options.arguments.empty() && options.arguments.front() == "--") {
    options.arguments.erase(options.arguments.begin());
  }
  if (options.arguments.empty()) throw UsageError("there is no program to start");
  options.program = options.arguments.front();
  // It would be a name that nobody has given to a program.
  if (options.program.starts_with('-')) {
    throw UsageError(fmt::format("there is no option {}", options.program));
  }
  return Launch(options);
}

}  // namespace
}  // namespace onebit::perf

int main(int argc, char** argv) {
  using namespace onebit::perf;
  try {
    return Run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "onebit_run: {}\nRun onebit_run --help for the options.\n", error.what());
    return kExitUsage;
  } catch (const StartError& error) {
    fmt::print(stderr, "onebit_run: {}\n", error.what());
    return error.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "onebit_run: {}\n", error.what());
    return kExitFailed;
  }
}
