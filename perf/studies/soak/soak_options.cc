// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares the options to CLI11 and checks what it cannot.
#include "perf/studies/soak/soak_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::soak {
namespace {

constexpr int kDefaultThreads = 4;
constexpr int kMaxThreads = 16;  // each has a buffer for every one
constexpr size_t kMaxElements = size_t{1} << 28;
constexpr double kMaxSeconds = 1e7;

CLI::Validator Seconds() {
  return perf::Number("a time in seconds",
                      [](double seconds) { return seconds > 0 && seconds <= kMaxSeconds; });
}

void AddOptions(CLI::App& app, SoakOptions* options) {
  app.add_option("--seconds", options->seconds, "how long; a round that has begun is finished")
      ->check(Seconds())
      ->type_name("N");
  app.add_option("--rounds", options->rounds, "how many rounds at most")
      ->check(CLI::Range(uint64_t{1}, UINT64_MAX).description(""))
      ->check(perf::NoSign())
      ->type_name("N");
  app.add_option("--first-round", options->first_round, "number of the first round")
      ->check(perf::NoSign())
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--seed", options->seed, "what all random choices depend on")
      ->check(perf::NoSign())
      ->type_name("N")
      ->capture_default_str();
  perf::AddCount(app, "-t,--threads", "ranks, each a thread of this process", 1, kMaxThreads,
                 &options->ranks.threads);
  perf::AddRankSource(app, &options->ranks);
  perf::AddSize(app, "--max-elements", "elements of the largest tensor", "256K",
                &options->max_elements);
  app.add_option("--deadline", options->deadline_seconds,
                 "seconds without progress until a collective fails")
      ->check(Seconds())
      ->type_name("N")
      ->capture_default_str();
  app.add_flag_callback(
      "--allow-growth", [options] { options->is_memory_limited = false; },
      "report how memory grows, but do not fail: sanitizers keep what is freed");
  app.add_option("--json", options->json_path, "write a report to this file")->type_name("FILE");
}

}  // namespace

std::optional<SoakOptions> ParseOptions(int argc, const char* const* argv,
                                        std::optional<int> launched_rank) {
  SoakOptions options;
  options.ranks.threads = kDefaultThreads;
  options.ranks.launched_rank = launched_rank;
  CLI::App app(
      "Makes and unmakes communicators and compressors at random, allreduces, broadcasts and meets "
      "on "
      "them,\nand verifies every result against a scalar model. In the end memory and descriptors "
      "must be what they were.",
      "soak");
  AddOptions(app, &options);
  if (!perf::ParseCommandLine(app, argc, argv, options.ranks.is_speaker())) return std::nullopt;
  if (options.seconds == 0 && options.rounds == 0) {
    throw perf::UsageError("say how long: --seconds N, --rounds N, or both");
  }
  if (options.max_elements > kMaxElements) {
    throw perf::UsageError(fmt::format("--max-elements: more than {}", kMaxElements));
  }
  options.ranks.is_threads_given = app.count("--threads") > 0;
  options.transport = perf::CheckedTransportOf(options.ranks);
  return options;
}

std::string RepeatCommand(const SoakOptions& options, int ranks, uint64_t round) {
  const std::string what =
      fmt::format("soak --seed {} --first-round {} --rounds 1 --max-elements {}", options.seed,
                  round, options.max_elements);
  if (!options.ranks.is_one_rank()) return fmt::format("{} -t {}", what, ranks);
  if (options.transport == "mpi")
    return fmt::format("mpirun -np {} {} --transport mpi", ranks, what);
  return fmt::format("{} --procs {} --transport {}", what, ranks, options.transport);
}

}  // namespace onebit::soak
