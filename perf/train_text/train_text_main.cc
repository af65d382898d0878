// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// train_text: see --help. Exit status: 0 if the run finished or diverged, 1 for an error, 2 for bad
// usage.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "onebit/onebit.h"
#include "perf/common/comm_handles.h"
#include "perf/common/procs.h"
#include "perf/common/progress_line.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"
#include "perf/common/tool_main.h"
#include "perf/train_text/outer_options.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"
#include "perf/train_text/train_report.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {
namespace {

using Clock = std::chrono::steady_clock;

/** Runs the training; `comm` is null if all ranks are threads of this process. */
TrainResult TrainHere(const TrainOptions& options, const Corpus& corpus, perf::CommHandle& comm) {
  constexpr std::chrono::milliseconds kDrawInterval{200};
  // Only the first process gets these calls, whichever that is after a loss.
  perf::Progress progress(true);
  const Clock::time_point start = Clock::now();
  Clock::time_point drawn;
  TrainHooks hooks;
  hooks.on_step = [&](int steps_done, const StepRecord& step) {
    const Clock::time_point now = Clock::now();
    if (now - drawn < kDrawInterval) return;
    drawn = now;
    progress.Show(fmt::format("step {} of {}, loss {:.4f}, {:.0f} s", steps_done, options.steps,
                              step.loss, std::chrono::duration<double>(now - start).count()));
  };
  return comm == nullptr ? Train(options, corpus, hooks)
                         : TrainAsProcess(options, corpus, hooks, comm);
}

int Run(TrainOptions options) {
  perf::CommHandle comm;
  // Processes are joined before anything can fail in one of them: the others would wait for it.
  if (options.source.is_one_rank()) {
    onebitComm_t joined = nullptr;
    perf::Check(perf::JoinProcesses(options.transport, &joined), "onebitCommInitEnv");
    comm.reset(joined);
    options.ranks = perf::CountOf(joined);
  }
  CheckLoss(options, options.ranks);
  bool is_speaker = options.source.is_speaker();
  std::ofstream json;
  if (is_speaker && !options.json_path.empty()) {
    // Opened before the run: nobody wants to learn after it that the result cannot be written.
    json.open(options.json_path);
    if (!json) {
      throw perf::UsageError(fmt::format("--json: {}: {}", options.json_path, perf::ErrnoText()));
    }
  }
  const Corpus corpus = LoadCorpus(options.text_path);
  if (is_speaker) fmt::print("{}", DescribeRun(options, corpus));
  if (const std::optional<std::string> warning = OuterWarning(options); is_speaker && warning) {
    fmt::print(stderr, "train_text: {}\n", *warning);
  }
  std::fflush(stdout);

  const TrainResult result = TrainHere(options, corpus, comm);
  if (comm != nullptr) is_speaker = perf::RankOf(comm.get()) == 0;  // the former one may be gone
  if (!is_speaker) return perf::kExitOk;
  fmt::print("{}", Summarize(options, result));
  if (!options.json_path.empty()) {
    if (!json.is_open()) json.open(options.json_path);
    json << ToJson(options, corpus, result);
    json.close();
    if (!json) throw perf::ToolError(fmt::format("{}: writing failed", options.json_path));
  }
  return perf::kExitOk;
}

}  // namespace
}  // namespace onebit::train

int main(int argc, char** argv) {
  using namespace onebit;
  return perf::RunTool("train_text", perf::LaunchedRank().value_or(0) == 0, [&] {
    const std::optional<train::TrainOptions> options = train::ParseOptions(argc, argv);
    if (!options) return perf::kExitOk;
    if (options->source.procs == 0) return train::Run(*options);
    return perf::LaunchSelf(
        "train_text", options->source.procs, argc, argv,
        options->survive ? std::optional(options->survive->rank) : std::nullopt);
  });
}
