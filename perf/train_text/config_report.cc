// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/train_text/config_report.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/outer_options.h"

namespace onebit::train {
namespace {

nlohmann::ordered_json NumberOr(int64_t number, int64_t word_value, const char* word) {
  if (number == word_value) return word;
  return number;
}

std::string ResidualText(const TrainOptions& options) {
  std::string text;
  if (options.residual_type != onebitFloat32) {
    text += fmt::format(", {} residuals", TypeName(options.residual_type));
  }
  if (!options.server_residual) text += ", no server residual";
  return text;
}

/** Lists the members that only some optimizers have and that are set, by name. */
nlohmann::ordered_json RuleJson(const onebitOptimizerConfig_t& rule) {
  auto json = nlohmann::ordered_json::object();
  if (rule.freezeStep != ONEBIT_UNDEF_STEP && rule.freezeStep != ONEBIT_FREEZE_NEVER) {
    json["freeze"] = rule.freezeStep == ONEBIT_FREEZE_SETTLED
                         ? nlohmann::ordered_json("settled")
                         : NumberOr(rule.freezeStep, ONEBIT_FREEZE_AUTOMATIC, "auto");
  }
  const auto add = [&](const auto& members, auto unset) {
    for (const auto& member : members) {
      const auto value = rule.*member.member;
      if (value != unset) json[ReportName(member.flag)] = value;
    }
  };
  add(kLambMembers, ONEBIT_UNDEF_REAL);
  add(kCompressedLambMembers, ONEBIT_UNDEF_REAL);
  add(kZeroOneMembers, ONEBIT_UNDEF_STEP);
  if (rule.biasCorrection == 1) json["bias_correction"] = 1;
  if (rule.rateTied != ONEBIT_UNDEF_INT) json["rate_tied"] = rule.rateTied;
  if (rule.denseStepFeedsMomentum == 1) json["dense_step_feeds_momentum"] = 1;
  return json;
}

}  // namespace

std::string DescribeModel(const ModelShape& shape) {
  const std::string text = fmt::format("context {}, embedding {}", shape.context, shape.embedding);
  if (shape.kind == ModelKind::kMlp) {
    return text + fmt::format(", hidden {} and {}", shape.hidden[0], shape.hidden[1]);
  }
  return fmt::format("{}, {}, {} blocks of {} heads", ModelName(shape.kind), text, shape.blocks,
                     shape.heads);
}

std::string DescribeOptimizer(const TrainOptions& options) {
  std::string text = OptimizerName(options.optimizer);
  const perf::CodecChoice compression = CompressionOf(options);
  if (Compresses(options.optimizer)) {
    text +=
        fmt::format(" ({}) {} {} block {}, variance floor {}", VariantName(options.variant),
                    compression.mode_name(),
                    compression.has_codes() ? compression.codec_name() : compression.scale_name(),
                    compression.block_text(), VarianceFloorOf(options));
    if (IsSharded(options.optimizer)) {
      text += fmt::format(", parameters gathered in {}", GatherName(options.gather));
    }
    if (!HasScalesOfTensors(options)) text += ", scales fused";
    text += ResidualText(options);
  } else if (options.codec) {
    text += fmt::format(" of {} averaged in {} {}{} block {}",
                        options.outer ? "outer gradients" : "gradients", compression.codec_name(),
                        compression.mode_name(),
                        compression.has_codes() ? "" : fmt::format(" {}", compression.scale_name()),
                        compression.block_text());
    text += ResidualText(options);
  }
  const nlohmann::ordered_json rule = RuleJson(ConfigOf(options));
  for (const auto& [name, value] : rule.items()) {
    text +=
        fmt::format(", {} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (options.outer) text += ", outer " + OuterText(*options.outer);
  if (options.gradient_type != onebitFloat32) {
    text += fmt::format(", {} gradients", TypeName(options.gradient_type));
  }
  return text;
}

nlohmann::ordered_json ConfigJson(const TrainOptions& options) {
  const ModelShape& shape = options.shape;
  nlohmann::ordered_json config = {{"batch", options.batch}};
  if (shape.kind != ModelKind::kMlp) config["model"] = ModelName(shape.kind);
  config["context"] = shape.context;
  config["embedding"] = shape.embedding;
  if (shape.kind == ModelKind::kMlp) {
    config["hidden"] = shape.hidden;
  } else {
    config["blocks"] = shape.blocks;
    config["heads"] = shape.heads;
  }
  config.update({
      {"lr", options.lr},
      {"warmup", options.warmup_steps},
      {"beta1", options.beta1},
      {"beta2", options.beta2},
      {"weight_decay", options.weight_decay},
      {"max_grad_norm", options.max_grad_norm},
      {"grad_type", TypeName(options.gradient_type)},
      {"loss_scale", options.gradient_scale()},
  });
  const perf::CodecChoice compression = CompressionOf(options);
  if (Compresses(options.optimizer)) {
    config["variant"] = VariantName(options.variant);
    config["variance_floor"] = VarianceFloorOf(options);
    config["scales"] = HasScalesOfTensors(options) ? "segment" : "fused";
    if (IsSharded(options.optimizer)) config["gather"] = GatherName(options.gather);
  }
  if (options.outer) config["outer"] = OuterText(*options.outer);
  if (options.codec) config["codec"] = compression.codec_name();
  if (compression.is_compressed()) {
    if (!compression.has_codes()) config["scale"] = compression.scale_name();
    config["block"] = NumberOr(options.block, ONEBIT_BLOCK_TENSOR, "tensor");
    config["residual"] = TypeName(options.residual_type);
    config["server_residual"] = options.server_residual;
  }
  config.update(RuleJson(ConfigOf(options)));
  return config;
}

}  // namespace onebit::train
