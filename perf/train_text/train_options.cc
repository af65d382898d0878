// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line. An option without effect is an error, as is an unknown one. Options of
// optimizers are in optimizer_options.cc.
#include "perf/train_text/train_options.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_options.h"
#include "perf/train_text/outer_options.h"

namespace onebit::train {
namespace {

const perf::Names<ModelKind> kModels = {{"mlp", ModelKind::kMlp},
                                        {"transformer", ModelKind::kTransformer}};
constexpr int kWindows = 16;  // of a batch, by default

constexpr int kMaxRanks = 1024;
constexpr int kMaxBatch = 1 << 16;
constexpr int kMaxHidden = 1 << 16;
constexpr double kHalfLossScale = 1024;
// Processes of MPI end together.
constexpr std::string_view kSurvivingTransports[] = {"socket", "ucx"};

Loss ParseLoss(const std::string& text) {
  Loss loss;
  if (!perf::ParsePair(text, '@', &loss.rank, &loss.step) || loss.rank < 0 || loss.step < 1) {
    throw CLI::ValidationError("--survive",
                               text + " is not RANK@STEP, as 2@250 for rank 2 in step 250");
  }
  return loss;
}

void AddRunOptions(CLI::App& app, TrainOptions& options) {
  app.add_option("-t,--threads", options.ranks, "Ranks, each a thread of this process")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  perf::AddRankSource(app, &options.source);
  app.add_option("--steps", options.steps, "Steps of the run")
      ->check(CLI::Range(1, kMaxSteps))
      ->capture_default_str();
  perf::AddChoice(
      app, "--model", kModels, &options.shape.kind,
      "A multilayer perceptron that predicts single bytes, or a transformer that predicts "
      "windows of 32");
  app.add_option("--batch", options.batch,
                 "Examples per rank and step: bytes, or windows [64; transformer 16]")
      ->check(CLI::Range(1, kMaxBatch));
  app.add_option("--seed", options.seed, "Seed of parameters and batches")
      ->check(perf::NoSign())
      ->capture_default_str();
  app.add_option_function<std::vector<int>>(
         "--hidden",
         [&options](const std::vector<int>& widths) {
           std::copy(widths.begin(), widths.end(), options.shape.hidden.begin());
         },
         "mlp: widths of the two hidden layers [768,512]")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, kMaxHidden))
      ->type_name("A,B");
  app.add_option("--text", options.text_path, "File or directory to learn from")
      ->capture_default_str();
  CLI::Option* const json =
      app.add_option("--json", options.json_path, "Write the results to this file")
          ->type_name("FILE");
  app.add_option("--eval-every", options.evaluate_every_percent,
                 "Evaluate the held-out text every so many percent of the steps, for --json; the\n"
                 "time it takes is not counted")
      ->check(perf::Number("more than 0 and at most 100",
                           [](double percent) { return percent > 0 && percent <= 100; }))
      ->needs(json)
      ->type_name("PERCENT");
  app.add_option_function<std::string>(
         "--survive", [&options](const std::string& text) { options.survive = ParseLoss(text); },
         "This rank kills itself in this step, and the others go on without it; for processes over "
         "socket or ucx")
      ->type_name("RANK@STEP");
  app.add_flag("--check-replicas", options.check_replicas,
               "Compare the parameters of all ranks after every step, not only at the end");
}

void CompleteModel(const CLI::App& app, TrainOptions& options) {
  const ModelKind kind = options.shape.kind;
  if (kind == ModelKind::kMlp) return;
  RequireUnused(app, {"--hidden"}, fmt::format("with --model {}", ModelName(kind)));
  options.shape = DefaultShape(kind);
  if (app.count("--batch") == 0) options.batch = kWindows;
}

void SetSource(const CLI::App& app, TrainOptions& options) {
  options.source.threads = options.ranks;
  options.source.is_threads_given = app.count("--threads") > 0;
  options.transport = perf::CheckedTransportOf(options.source);
  if (!options.survive) return;
  if (std::ranges::find(kSurvivingTransports, options.transport) ==
      std::end(kSurvivingTransports)) {
    throw perf::UsageError(options.transport == "local"
                               ? "--survive: threads die together: make ranks processes with "
                                 "--procs N"
                               : fmt::format("--survive: {} cannot go on without a rank: use "
                                             "--transport {}",
                                             options.transport, kSurvivingTransports[0]));
  }
  // Otherwise the number of ranks is known when they have joined.
  if (options.source.procs > 0) CheckLoss(options, options.source.procs);
}

void CheckOverlap(const CLI::App& app, const TrainOptions& options) {
  if (!options.is_overlapped) return;
  const char* const reason = "with --overlap, where layers are optimized one by one";
  RequireUnused(app, {"--max-grad-norm", "--survive"}, reason);
  if (options.freeze && *options.freeze < 0) {
    throw perf::UsageError(fmt::format("--freeze: a rule has no common step {}", reason));
  }
}

}  // namespace

const char* ModelName(ModelKind kind) { return perf::NameOf(kModels, kind); }

double TrainOptions::gradient_scale() const {
  return loss_scale.value_or(gradient_type == onebitFloat16 ? kHalfLossScale : 1.0);
}

void CheckLoss(const TrainOptions& options, int ranks) {
  if (!options.survive) return;
  const Loss& loss = *options.survive;
  if (ranks < 2) throw perf::UsageError("--survive: with one rank, none is left");
  if (loss.rank >= ranks) {
    throw perf::UsageError(
        fmt::format("--survive: there is no rank {} among {}", loss.rank, ranks));
  }
  if (loss.step > options.steps) {
    throw perf::UsageError(
        fmt::format("--survive: there is no step {} in {} steps", loss.step, options.steps));
  }
}

std::optional<TrainOptions> ParseOptions(int argc, const char* const* argv,
                                         std::optional<int> launched_rank) {
  TrainOptions options;
  options.source.launched_rank = launched_rank;
  CLI::App app(
      "Trains a byte-level language model on text, data-parallel over ranks that are threads or\n"
      "processes, with Adam, LAMB or their compressed forms, and reports loss, bytes and time.");
  app.set_help_flag("-h,--help", "Print this help");
  AddRunOptions(app, options);
  AddOptimizerOptions(app, options);
  AddOuterOption(app, options);
  AddCompressionOptions(app, options);
  app.add_flag(
      "--overlap", options.is_overlapped,
      "Step each layer as soon as its gradient is there, on a stream, while the gradients\n"
      "of the layers before it are computed");
  if (!perf::ParseCommandLine(app, argc, argv, options.source.is_speaker())) return std::nullopt;
  CompleteModel(app, options);
  CheckOuter(app, options);
  CompleteOptimizerOptions(app, options);
  CheckOverlap(app, options);
  SetSource(app, options);
  return options;
}

}  // namespace onebit::train
