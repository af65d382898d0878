// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line. An option that would have no effect is an error, like an unknown one.
#include "perf/train_text/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <vector>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

namespace onebit::train {
namespace {

constexpr int kMaxRanks = 1024;
constexpr int kMaxSteps = 10'000'000;
constexpr int kMaxBatch = 1 << 16;
constexpr int kMaxHidden = 1 << 16;
constexpr int kBlockMultiple = 64;
constexpr double kHalfLossScale = 1024;
constexpr char kSurvivingTransport[] = "ucx";
constexpr int64_t kFreezeShare = 5;  // freeze after 1/5 of the steps

template <typename Enum>
using Names = std::vector<std::pair<std::string, Enum>>;

const Names<OptimizerKind> kOptimizers = {{"adam", OptimizerKind::kAdam},
                                          {"onebit-adam", OptimizerKind::kOneBitAdam}};
const Names<onebitMode_t> kModes = {{"ef", onebitModeEf}, {"sign", onebitModeSign}};
const Names<onebitScaleRule_t> kScaleRules = {{"l2", onebitScaleL2}, {"l1", onebitScaleL1}};
const Names<onebitDataType_t> kGradientTypes = {
    {"float", onebitFloat32}, {"half", onebitFloat16}, {"bfloat16", onebitBfloat16}};
const Names<onebitDataType_t> kResidualTypes = {{"float", onebitFloat32},
                                                {"bfloat16", onebitBfloat16}};

template <typename Enum>
const char* NameOf(const Names<Enum>& names, Enum value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [value](const auto& name) { return name.second == value; });
  return found == names.end() ? "?" : found->first.c_str();
}

/** `values` as "a|b|c". */
template <typename Enum>
std::string Choices(const Names<Enum>& names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : "|") + name;
  return text;
}

template <typename Enum>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, const Names<Enum>& names,
                       Enum& value, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::string>(
      flag,
      [&names, &value, flag](const std::string& text) {
        const auto found = std::find_if(names.begin(), names.end(),
                                        [&text](const auto& name) { return name.first == text; });
        if (found == names.end()) {
          throw CLI::ValidationError(flag, fmt::format("{} is not {}", text, Choices(names)));
        }
        value = found->second;
      },
      fmt::format("{} [{}]", help, NameOf(names, value)));
  return option->type_name(Choices(names));
}

/** An integer, or `word`, which stands for `word_value`. */
template <typename Integer, typename Store>
CLI::Option* AddIntegerOr(CLI::App& app, const std::string& flag, const std::string& word,
                          Integer word_value, Store store, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::string>(
      flag,
      [=](const std::string& text) {
        Integer number = word_value;
        if (text != word && !CLI::detail::lexical_cast(text, number)) {
          throw CLI::ValidationError(flag,
                                     fmt::format("{} is neither a number nor {}", text, word));
        }
        store(number, text != word);
      },
      help);
  return option->type_name("N|" + word);
}

/** A finite number that is not negative. CLI::Range lets NaN pass. */
CLI::Validator NotNegative() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine =
            CLI::detail::lexical_cast(text, number) && std::isfinite(number) && number >= 0;
        return is_fine ? "" : text + " is not a number of 0 or more";
      },
      "");
}

/** A number in (0, 100]. */
CLI::Validator Percent() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine = CLI::detail::lexical_cast(text, number) && number > 0 && number <= 100;
        return is_fine ? "" : text + " is not more than 0 and at most 100";
      },
      "");
}

/** A number in [0, 1). */
CLI::Validator Decay() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double number = -1;
        const bool is_fine = CLI::detail::lexical_cast(text, number) && number >= 0 && number < 1;
        return is_fine ? "" : text + " is not in [0, 1)";
      },
      "");
}

/** Conversions to unsigned types let -1 pass. */
CLI::Validator NoSign() {
  return CLI::Validator(
      [](std::string& text) { return text.starts_with('-') ? text + " is negative" : ""; }, "");
}

Loss ParseLoss(const std::string& text) {
  Loss loss;
  const size_t at = text.find('@');
  if (at == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, at), loss.rank) ||
      !CLI::detail::lexical_cast(text.substr(at + 1), loss.step) || loss.rank < 0 ||
      loss.step < 1) {
    throw CLI::ValidationError("--survive",
                               text + " is not RANK@STEP, as 2@250 for rank 2 in step 250");
  }
  return loss;
}

void AddRunOptions(CLI::App& app, TrainOptions& options) {
  app.add_option("-t,--threads", options.ranks, "Ranks, each a thread of this process")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--procs", options.source.procs, perf::kProcsHelp)
      ->check(CLI::Range(1, perf::kMaxProcesses))
      ->type_name("N");
  app.add_option("--transport", options.source.transport, perf::kTransportHelp)->type_name("NAME");
  app.add_option("--steps", options.steps, "Steps of the run")
      ->check(CLI::Range(1, kMaxSteps))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Examples per rank and step")
      ->check(CLI::Range(1, kMaxBatch))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of parameters and batches")
      ->check(NoSign())
      ->capture_default_str();
  app.add_option_function<std::vector<int>>(
         "--hidden",
         [&options](const std::vector<int>& widths) {
           std::copy(widths.begin(), widths.end(), options.shape.hidden.begin());
         },
         "Widths of the two hidden layers [768,512]")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, kMaxHidden))
      ->type_name("A,B");
  app.add_option("--text", options.text_path, "File or directory to learn from")
      ->capture_default_str();
  app.add_option("--json", options.json_path, "Write the results to this file")->type_name("FILE");
  app.add_option("--eval-every", options.evaluate_every_percent,
                 "Evaluate the held-out text every so many percent of the steps, for --json; the\n"
                 "time it takes is not counted")
      ->check(Percent())
      ->type_name("PERCENT");
  app.add_option_function<std::string>(
         "--survive", [&options](const std::string& text) { options.survive = ParseLoss(text); },
         "This rank kills itself in this step, and the others go on without it; for processes over "
         "ucx")
      ->type_name("RANK@STEP");
  app.add_flag("--check-replicas", options.check_replicas,
               "Compare the parameters of all ranks after every step, not only at the end");
}

void AddOptimizerOptions(CLI::App& app, TrainOptions& options) {
  AddChoice(app, "--optimizer", kOptimizers, options.optimizer, "Update rule");
  app.add_option("--lr", options.lr, "Highest learning rate")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--warmup", options.warmup_steps, "Steps of linear warm-up; then half a cosine")
      ->check(CLI::Range(0, kMaxSteps))
      ->capture_default_str();
  app.add_option("--beta1", options.beta1, "Decay of the momentum")
      ->check(Decay())
      ->capture_default_str();
  app.add_option("--beta2", options.beta2, "Decay of the variance")
      ->check(Decay())
      ->capture_default_str();
  app.add_option("--weight-decay", options.weight_decay, "Decoupled weight decay")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--max-grad-norm", options.max_grad_norm, "Clip gradients to this norm; 0: do not")
      ->check(NotNegative())
      ->capture_default_str();
  AddIntegerOr<int64_t>(
      app, "--freeze", "auto", ONEBIT_FREEZE_AUTOMATIC,
      [&options](int64_t step, bool is_number) {
        if (is_number && step < 1) throw CLI::ValidationError("--freeze", "not 1 or more");
        options.freeze = step;
      },
      "Steps before the variance is frozen [a fifth of the steps]");
  app.add_option("--variance-floor", options.variance_floor,
                 "Least share of its layer's RMS that a frozen sqrt(v) counts as")
      ->check(NotNegative())
      ->capture_default_str();
}

void AddOverlapOption(CLI::App& app, TrainOptions& options) {
  app.add_flag(
      "--overlap", options.is_overlapped,
      "Step each layer as soon as its gradient is there, on a stream, while the gradients\n"
      "of the layers before it are computed");
}

void AddCompressionOptions(CLI::App& app, TrainOptions& options) {
  AddChoice(app, "--grad-type", kGradientTypes, options.gradient_type, "Type of gradients");
  app.add_option("--loss-scale", options.loss_scale,
                 "Multiplies gradients while in --grad-type [1024 for half, else 1]")
      ->check(NotNegative());
  AddChoice(app, "--mode", kModes, options.mode, "Compression with or without error feedback");
  AddChoice(app, "--scale", kScaleRules, options.scale_rule, "Scale of a block");
  AddIntegerOr<int>(
      app, "--block", "tensor", ONEBIT_BLOCK_TENSOR,
      [&options](int block, bool is_number) {
        if (is_number && (block < 1 || block % kBlockMultiple != 0)) {
          throw CLI::ValidationError(
              "--block", fmt::format("{} is not a multiple of {}", block, kBlockMultiple));
        }
        options.block = block;
      },
      fmt::format("Elements per scale [{}]", options.block));
  AddChoice(app, "--residual", kResidualTypes, options.residual_type, "Type of residuals");
  app.add_flag_callback(
      "--no-server-residual", [&options] { options.server_residual = false; },
      "Error feedback on the workers' side only");
}

void RequireUnused(const CLI::App& app, std::initializer_list<const char*> flags,
                   const std::string& reason) {
  for (const char* flag : flags) {
    if (app.get_option(flag)->count() > 0) {
      throw CLI::ValidationError(flag, "has no effect " + reason);
    }
  }
}

void SetSource(const CLI::App& app, TrainOptions& options) {
  const char* set_transport = std::getenv("ONEBIT_TRANSPORT");
  options.source.threads = options.ranks;
  options.source.is_threads_given = app.count("--threads") > 0;
  const std::string problem = perf::ProblemWith(options.source, set_transport);
  if (!problem.empty()) throw CLI::ParseError(problem, kUsageErrorStatus);
  options.transport = perf::TransportOf(options.source, set_transport);
  if (!options.survive) return;
  if (options.transport != kSurvivingTransport) {
    throw CLI::ValidationError(
        "--survive", options.transport == "local"
                         ? "threads die together: make ranks processes with --procs N"
                         : options.transport + " cannot go on without a rank: use --transport " +
                               kSurvivingTransport);
  }
  if (options.source.procs == 0) return;  // the number of ranks is known when they have joined
  const std::string loss_problem = ProblemWithLoss(options, options.source.procs);
  if (!loss_problem.empty()) throw CLI::ParseError(loss_problem, kUsageErrorStatus);
}

void CheckCombination(const CLI::App& app, const TrainOptions& options) {
  if (options.loss_scale == 0.0) throw CLI::ValidationError("--loss-scale", "is 0");
  if (options.optimizer == OptimizerKind::kAdam) {
    RequireUnused(app,
                  {"--freeze", "--variance-floor", "--mode", "--scale", "--block", "--residual",
                   "--no-server-residual"},
                  "with --optimizer adam, which does not compress");
  }
  if (options.is_overlapped) {
    const char* const reason = "with --overlap, where layers are optimized one by one";
    RequireUnused(app, {"--max-grad-norm", "--survive"}, reason);
    if (options.freeze == ONEBIT_FREEZE_AUTOMATIC) {
      throw CLI::ValidationError("--freeze", fmt::format("auto has no common step {}", reason));
    }
  }
  if (options.mode == onebitModeSign) {
    RequireUnused(app, {"--residual", "--no-server-residual"},
                  "with --mode sign, which has no residuals");
  }
}

}  // namespace

int64_t TrainOptions::freeze_step() const {
  if (optimizer == OptimizerKind::kAdam) return ONEBIT_FREEZE_NEVER;
  return freeze.value_or(std::max<int64_t>(1, steps / kFreezeShare));
}

double TrainOptions::gradient_scale() const {
  return loss_scale.value_or(gradient_type == onebitFloat16 ? kHalfLossScale : 1.0);
}

std::string ProblemWithLoss(const TrainOptions& options, int ranks) {
  if (!options.survive) return "";
  const Loss& loss = *options.survive;
  if (ranks < 2) return "--survive: with one rank nobody is left";
  if (loss.rank >= ranks) {
    return fmt::format("--survive: there is no rank {} among {}", loss.rank, ranks);
  }
  if (loss.step > options.steps) {
    return fmt::format("--survive: there is no step {} in {} steps", loss.step, options.steps);
  }
  return "";
}

const char* OptimizerName(OptimizerKind optimizer) { return NameOf(kOptimizers, optimizer); }

const char* ModeName(const TrainOptions& options) {
  return options.optimizer == OptimizerKind::kAdam ? "dense" : NameOf(kModes, options.mode);
}

const char* ScaleRuleName(onebitScaleRule_t rule) { return NameOf(kScaleRules, rule); }

const char* TypeName(onebitDataType_t type) { return NameOf(kGradientTypes, type); }

ParsedOptions ParseOptions(int argc, const char* const* argv, std::optional<int> launched_rank) {
  ParsedOptions parsed;
  parsed.options.source.launched_rank = launched_rank;
  CLI::App app(
      "Trains a byte-level language model on text, data-parallel over ranks that are threads or\n"
      "processes, with Adam or 1-bit Adam, and reports loss, bytes sent and time.");
  app.set_help_flag("-h,--help", "Print this help");
  AddRunOptions(app, parsed.options);
  AddOptimizerOptions(app, parsed.options);
  AddCompressionOptions(app, parsed.options);
  AddOverlapOption(app, parsed.options);
  try {
    app.parse(argc, argv);
    CheckCombination(app, parsed.options);
    SetSource(app, parsed.options);
  } catch (const CLI::ParseError& error) {
    std::ostringstream unheard;
    const bool is_speaker = parsed.options.source.is_speaker();
    const bool is_help =
        app.exit(error, is_speaker ? std::cout : unheard, is_speaker ? std::cerr : unheard) == 0;
    parsed.exit_status = is_help ? 0 : kUsageErrorStatus;
  }
  return parsed;
}

}  // namespace onebit::train
