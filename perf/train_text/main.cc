// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// train_text: see --help. Exit status: 0 the run was finished or diverged, 1 an error, 2 bad usage.
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>

#include <fmt/core.h>

#include "perf/train_text/options.h"
#include "perf/train_text/report.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {
namespace {

int RunTool(const TrainOptions& options) {
  std::ofstream json;
  if (!options.json_path.empty()) {
    // Before the run: nobody wants to learn after it that the result cannot be written.
    json.open(options.json_path);
    if (!json) {
      fmt::print(stderr, "--json: {}: {}\n", options.json_path, std::strerror(errno));
      return kUsageErrorStatus;
    }
  }
  const Corpus corpus = LoadCorpus(options.text_path);
  fmt::print("{}", DescribeRun(options, corpus));
  std::fflush(stdout);

  ProgressLine progress;
  TrainHooks hooks;
  hooks.on_step = [&](int steps_done, const StepRecord& step) {
    progress.Update(steps_done, options.steps, step.loss);
  };
  const TrainResult result = Train(options, corpus, hooks);
  progress.Clear();
  fmt::print("{}", Summarize(options, result));
  if (json.is_open()) {
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
  try {
    return onebit::train::RunTool(parsed.options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_text: {}\n", error.what());
    return 1;
  }
}
