// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/optimizer_options.h"

#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "perf/common/codec_choice.h"
#include "perf/common/codec_table.h"
#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/outer_options.h"

namespace onebit::train {
namespace {

// Headings of the help.
constexpr char kLambGroup[] = "LAMB";
constexpr char kZeroOneGroup[] = "0/1 Adam";

const perf::Names<OptimizerKind> kOptimizers = {
    {"adam", OptimizerKind::kAdam},
    {"onebit-adam", OptimizerKind::kOneBitAdam},
    {"sharded-onebit-adam", OptimizerKind::kShardedOneBitAdam},
    {"lamb", OptimizerKind::kLamb},
    {"onebit-lamb", OptimizerKind::kOneBitLamb},
    {"zero-one-adam", OptimizerKind::kZeroOneAdam}};
const perf::Names<onebitCodec_t> kGatherCodecs = {{"sign", onebitCodecSign},
                                                  {"int2", onebitCodecInt2},
                                                  {"fp4", onebitCodecFp4},
                                                  {"int8", onebitCodecInt8},
                                                  {"bf16", onebitCodecBf16}};
const perf::Names<onebitVariant_t> kVariants = {{"paper", onebitVariantPaper},
                                                {"deepspeed", onebitVariantDeepSpeed}};
const perf::Names<onebitMode_t> kModes = {
    {"ef", onebitModeEf}, {"sign", onebitModePlain}, {"plain", onebitModePlain}};
const perf::Names<onebitScaleRule_t> kScaleRules = {{"l2", onebitScaleL2}, {"l1", onebitScaleL1}};
const perf::Names<onebitScales_t> kScales = {{"segment", onebitScalesSegment},
                                             {"fused", onebitScalesFused}};
const perf::Names<onebitDataType_t> kGradientTypes = {
    {"float", onebitFloat32}, {"half", onebitFloat16}, {"bfloat16", onebitBfloat16}};
const perf::Names<onebitDataType_t> kResidualTypes = {{"float", onebitFloat32},
                                                      {"bfloat16", onebitBfloat16}};

CLI::Validator NotNegative() {
  return perf::Number("a number of 0 or more", [](double number) { return number >= 0; });
}

CLI::Validator Decay() {
  return perf::Number("in [0, 1)", [](double decay) { return decay >= 0 && decay < 1; });
}

void AddZeroOneOptions(CLI::App& app, onebitOptimizerConfig_t& rule) {
  for (const RuleMember<int64_t>& member : kZeroOneMembers) {
    app.add_option(member.flag, rule.*member.member, member.help)
        ->check(CLI::Range(1, kMaxSteps))
        ->type_name("N")
        ->group(kZeroOneGroup);
  }
  app.add_option("--rate-tied", rule.rateTied,
                 "1: the interval doubles when the rate halves [1, or 0 with --local-step-scaler]")
      ->check(CLI::Range(0, 1))
      ->type_name("0|1")
      ->group(kZeroOneGroup);
  app.add_flag_callback(
         "--dense-step-feeds-momentum", [&rule] { rule.denseStepFeedsMomentum = 1; },
         "A refresh of the variance also serves as the step's average, and is no sync")
      ->group(kZeroOneGroup);
}

void AddLambOptions(CLI::App& app, onebitOptimizerConfig_t& rule) {
  const auto add = [&](std::span<const RuleMember<double>> members) {
    for (const RuleMember<double>& member : members) {
      app.add_option(member.flag, rule.*member.member, member.help)
          ->check(NotNegative())
          ->type_name("X")
          ->group(kLambGroup);
    }
  };
  add(kLambMembers);
  add(kCompressedLambMembers);
}

/** Returns the flags of members and others. */
template <typename... Members>
std::vector<const char*> Flags(std::vector<const char*> flags, const Members&... lists) {
  const auto append = [&flags](const auto& members) {
    for (const auto& member : members) flags.push_back(member.flag);
  };
  (append(lists), ...);
  return flags;
}

void CheckRule(const CLI::App& app, const TrainOptions& options) {
  const OptimizerKind kind = options.optimizer;
  const std::string choice = fmt::format("with --optimizer {}", OptimizerName(kind));
  if (IsSharded(kind)) {
    RequireUnused(app, {"--variant", "--mode", "--no-server-residual", "--max-grad-norm"},
                  choice + ", which has no choice of it");
    if (options.codec == onebitCodecInt8Stochastic) {
      throw perf::UsageError(
          fmt::format("--codec: not int8s {}, which has error feedback", choice));
    }
  } else if (Compresses(kind)) {
    RequireUnused(app, {"--codec"}, choice + ", which sends signs");
  } else {
    std::vector<const char*> flags = {"--variant", "--freeze", "--variance-floor", "--scales"};
    if (!options.codec) {
      flags.insert(flags.end(),
                   {"--mode", "--scale", "--block", "--residual", "--no-server-residual"});
    }
    RequireUnused(app, Flags(flags, kCompressedLambMembers), choice + ", which does not compress");
  }
  if (!IsSharded(kind)) {
    RequireUnused(app, {"--gather"}, choice + ", whose parameters nobody sends");
  } else {
    for (const char* flag : {"--overlap", "--survive"}) {
      if (app.count(flag) > 0) {
        throw perf::UsageError(
            fmt::format("{}: not {}, whose ranks have a part each", flag, choice));
      }
    }
    if (options.freeze && *options.freeze < 0) {
      throw perf::UsageError(fmt::format("--freeze: must be a number {}", choice));
    }
  }
  if (!IsLamb(kind)) {
    RequireUnused(app, Flags({}, kLambMembers, kCompressedLambMembers),
                  choice + ": trust ratios are LAMB's");
  }
  if (kind == OptimizerKind::kZeroOneAdam) {
    RequireUnused(app, {"--freeze"}, choice + ": it freezes by --var-freeze-step");
    RequireUnused(app, {"--bias-correction"}, choice + ": its momentum is a mean over an interval");
  } else {
    RequireUnused(app, Flags({"--rate-tied", "--dense-step-feeds-momentum"}, kZeroOneMembers),
                  choice + ": it is zero-one-adam's");
  }
}

void CheckVariant(const CLI::App& app, const TrainOptions& options) {
  if (options.freeze == ONEBIT_FREEZE_SETTLED && options.rule.biasCorrection != 1) {
    throw perf::UsageError("--freeze: settled needs --bias-correction");
  }
  if (options.variant == onebitVariantDeepSpeed) {
    const char* const reason = "with --variant deepspeed, which has no such thing";
    RequireUnused(app, {"--local-step-start", "--rate-tied", "--dense-step-feeds-momentum"},
                  reason);
    RequireUnused(app, {"--bias-correction"}, reason);
    if (options.freeze && *options.freeze < 0) {
      throw perf::UsageError(fmt::format("--freeze: only a number has an effect {}", reason));
    }
  }
  if (options.rule.rateTied == 1) {
    RequireUnused(app, {"--local-step-scaler"},
                  "with --rate-tied 1, where the learning rate doubles the interval");
  }
}

/** Completes the compression of gradients, of which `mode` and `block` depend on the codec. */
void CompleteGradientCodec(const CLI::App& app, TrainOptions& options) {
  if (!options.codec) return;
  perf::CodecChoice choice = CompressionOf(options);
  if (choice.is_sparse()) {
    throw perf::UsageError(
        "--codec: topk and randk are for outer gradients, which onebit.torch.outer sends");
  }
  perf::CompleteCodec(app, onebitCollectiveAllReduce, &choice);
  if (options.outer && app.count("--mode") == 0) {
    const bool is_plain = DefaultOuterMode(choice.codec) == onebitModePlain;
    choice.mode = is_plain ? perf::Mode::kPlain : perf::Mode::kEf;
  }
  options.mode = choice.mode == perf::Mode::kEf ? onebitModeEf : onebitModePlain;
  options.block = choice.block;
  if (options.survive) {
    throw perf::UsageError(
        "--survive: not with --codec, because a rank that is a step behind could not catch up: its "
        "optimizer knows of no other rank");
  }
}

}  // namespace

void AddOptimizerOptions(CLI::App& app, TrainOptions& options) {
  perf::AddChoice(app, "--optimizer", kOptimizers, &options.optimizer, "Update rule");
  perf::AddChoice(app, "--variant", kVariants, &options.variant,
                  "As published, or as DeepSpeed computes it");
  app.add_option("--lr", options.lr, "Highest learning rate [0.003; lamb 0.02, onebit-lamb 0.01]")
      ->check(NotNegative());
  app.add_option("--warmup", options.warmup_steps, "Steps of linear warm-up; then half a cosine")
      ->check(CLI::Range(0, kMaxSteps))
      ->capture_default_str();
  app.add_option("--beta1", options.beta1, "Decay of the momentum")
      ->check(Decay())
      ->capture_default_str();
  app.add_option("--beta2", options.beta2, "Decay of the variance")
      ->check(Decay())
      ->capture_default_str();
  app.add_flag_callback(
      "--bias-correction", [&options] { options.rule.biasCorrection = 1; },
      "Correct the bias of both moments, as AdamW does");
  app.add_option("--weight-decay", options.weight_decay,
                 "Decoupled weight decay, except for biases")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--max-grad-norm", options.max_grad_norm, "Clip gradients to this norm; 0: do not")
      ->check(NotNegative())
      ->capture_default_str();
  perf::AddParsed(
      app, "--freeze",
      "Dense steps of two-stage optimizers; then the variance is frozen [a fifth of the steps]",
      "N|auto|settled", "", [&options](const std::string& text) -> std::string {
        int64_t step = text == "settled" ? ONEBIT_FREEZE_SETTLED : ONEBIT_FREEZE_AUTOMATIC;
        if (text != "auto" && text != "settled") {
          if (!perf::ParseNumber(text, &step)) {
            return text + " is neither a number nor auto or settled";
          }
          if (step < 1) return "not 1 or more";
        }
        options.freeze = step;
        return "";
      });
  app.add_option(
         "--variance-floor", options.variance_floor,
         "Least share of its layer's RMS that a frozen sqrt(v) counts as [0.01; deepspeed 0]")
      ->check(NotNegative());
  AddLambOptions(app, options.rule);
  AddZeroOneOptions(app, options.rule);
}

void AddCompressionOptions(CLI::App& app, TrainOptions& options) {
  perf::AddChoice(app, "--grad-type", kGradientTypes, &options.gradient_type, "Type of gradients");
  app.add_option("--loss-scale", options.loss_scale,
                 "Multiplies gradients while in --grad-type [1024 for half, else 1]")
      ->check(NotNegative());
  // Filled for the parser; CompleteOptimizerOptions empties it if there is no --codec.
  onebitCodec_t* const codec = &options.codec.emplace(onebitCodecSign);
  perf::AddCodec(
      app, codec,
      "adam and lamb: average gradients compressed, an element in as many bits as the name "
      "says\n(int8s rounds at random); --max-grad-norm then limits the average; with --outer: "
      "its\naverages [full precision; sharded-onebit-adam: sign]")
      ->default_str("");
  perf::AddChoice(app, "--mode", kModes, &options.mode,
                  "Compression with or without error feedback; sign: plain signs; int8s is plain "
                  "only");
  perf::AddChoice(app, "--scale", kScaleRules, &options.scale_rule, "Scale of a block of signs");
  perf::AddChoice(app, "--scales", kScales, &options.scales,
                  "Blocks of a compressing optimizer restart at each tensor, or run on;\n"
                  "sharded-onebit-adam: gradients travel in units of sqrt(v), or as they are");
  perf::AddBlock(app, &options.block)->default_str("4096; with --codec " + perf::DefaultBlocks());
  perf::AddChoice(app, "--gather", kGatherCodecs, &options.gather,
                  "sharded-onebit-adam: what the difference of parameters from what all ranks hold "
                  "travels in");
  perf::AddChoice(app, "--residual", kResidualTypes, &options.residual_type, "Type of residuals");
  app.add_flag_callback(
      "--no-server-residual", [&options] { options.server_residual = false; },
      "Error feedback on the workers' side only");
}

void RequireUnused(const CLI::App& app, const std::vector<const char*>& flags,
                   const std::string& reason) {
  for (const char* flag : flags) {
    if (app.get_option(flag)->count() > 0) {
      throw perf::UsageError(fmt::format("{}: has no effect {}", flag, reason));
    }
  }
}

void CompleteOptimizerOptions(const CLI::App& app, TrainOptions& options) {
  if (options.loss_scale == 0.0) throw perf::UsageError("--loss-scale: is 0");
  if (app.count("--codec") == 0) options.codec.reset();
  CheckRule(app, options);
  CheckVariant(app, options);
  CompleteGradientCodec(app, options);
  if (options.mode == onebitModePlain) {
    RequireUnused(app, {"--residual", "--no-server-residual"},
                  fmt::format("with --mode {}, which has no residuals", ModeName(options)));
  }
  if (app.count("--lr") == 0) options.lr = DefaultRate(options.optimizer);
}

const char* OptimizerName(OptimizerKind optimizer) { return perf::NameOf(kOptimizers, optimizer); }

const char* GatherName(onebitCodec_t codec) { return perf::NameOf(kGatherCodecs, codec); }

const char* VariantName(onebitVariant_t variant) { return perf::NameOf(kVariants, variant); }

std::string ModeName(const TrainOptions& options) {
  return std::string(CompressionOf(options).mode_name());
}

const char* TypeName(onebitDataType_t type) { return perf::NameOf(kGradientTypes, type); }

}  // namespace onebit::train
