// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// train_text: see --help. Exit status: 0 if the run finished or diverged, 1 for an error, 2 for bad
// usage.
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/core.h>

#include "onebit/onebit.h"
#include "perf/common/comm_handles.h"
#include "perf/common/procs.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/process_trainer.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"
#include "perf/train_text/train_report.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {
namespace {

/** Runs the training; `comm` is null if all ranks are threads of this process. */
TrainResult Run(const TrainOptions& options, const Corpus& corpus, perf::CommHandle& comm) {
  // Only the first process gets these calls, whichever that is after a loss.
  ProgressLine progress(true);
  TrainHooks hooks;
  hooks.on_step = [&](int steps_done, const StepRecord& step) {
    progress.Update(steps_done, options.steps, step.loss);
  };
  return comm == nullptr ? Train(options, corpus, hooks)
                         : TrainAsProcess(options, corpus, hooks, comm);
}

int RunTool(TrainOptions options) {
  perf::CommHandle comm;
  // Processes are joined before anything can fail in one of them: the others would wait for it.
  if (options.source.is_one_rank()) {
    onebitComm_t joined = nullptr;
    perf::Check(perf::JoinProcesses(options.transport, &joined), "onebitCommInitEnv");
    comm.reset(joined);
    options.ranks = perf::CountOf(joined);
  }
  bool is_speaker = options.source.is_speaker();
  if (const std::string problem = ProblemWithLoss(options, options.ranks); !problem.empty()) {
    if (is_speaker) fmt::print(stderr, "{}\n", problem);
    return kUsageErrorStatus;
  }
  std::ofstream json;
  if (is_speaker && !options.json_path.empty()) {
    // Opened before the run: nobody wants to learn after it that the result cannot be written.
    json.open(options.json_path);
    if (!json) {
      fmt::print(stderr, "--json: {}: {}\n", options.json_path, std::strerror(errno));
      return kUsageErrorStatus;
    }
  }
  const Corpus corpus = LoadCorpus(options.text_path);
  if (is_speaker) fmt::print("{}", DescribeRun(options, corpus));
  std::fflush(stdout);

  const TrainResult result = Run(options, corpus, comm);
  if (comm != nullptr) is_speaker = perf::RankOf(comm.get()) == 0;  // the former one may be gone
  if (!is_speaker) return 0;
  fmt::print("{}", Summarize(options, result));
  if (!options.json_path.empty()) {
    if (!json.is_open()) json.open(options.json_path);
    json << ToJson(options, corpus, result);
    json.close();
    if (!json) throw std::runtime_error(fmt::format("{}: writing failed", options.json_path));
  }
  return 0;
}

}  // namespace
}  // namespace onebit::train

int main(int argc, char** argv) {
  const onebit::train::ParsedOptions parsed = onebit::train::ParseOptions(argc, argv);
  if (parsed.exit_status) return *parsed.exit_status;
  const onebit::perf::RankSource& source = parsed.options.source;
  try {
    if (source.procs > 0) {
      const std::optional<onebit::train::Loss>& loss = parsed.options.survive;
      return onebit::perf::LaunchSelf("train_text", source.procs, argc, argv,
                                      loss ? std::optional(loss->rank) : std::nullopt);
    }
    return onebit::train::RunTool(parsed.options);
  } catch (const onebit::perf::ToolError& error) {
    if (source.is_speaker() || !error.is_consequence()) {
      fmt::print(stderr, "train_text: {}\n", error.what());
    }
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_text: {}\n", error.what());
    return 1;
  }
}
