// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Reads and checks --outer.
#include "perf/train_text/outer_options.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/optimizer_options.h"

namespace onebit::train {
namespace {

// Below this share coarse codecs with feedback end at worse losses than without feedback.
constexpr float kLeastMerge = 0.25;

bool IsShare(float number) { return number >= 0 && number < 1; }

/** Sets a member from its text; returns what is wrong with it. */
template <typename Number, typename Fits>
std::string SetNumber(std::string_view text, Number* number, Fits fits, const char* range) {
  Number parsed{};
  if (!perf::ParseNumber(text, &parsed) || !fits(parsed)) {
    return fmt::format("{} is not {}", text, range);
  }
  *number = parsed;
  return "";
}

std::string SetMember(std::string_view name, std::string_view text, OuterRule* rule) {
  const auto is_count = [](int number) { return number >= 1 && number <= kMaxSteps; };
  const auto is_overlap = [](int number) { return number >= 0 && number <= kMaxSteps; };
  const auto is_rate = [](float rate) { return rate > 0 && rate <= 1000; };
  if (name == "every") return SetNumber(text, &rule->every, is_count, "1 or more steps");
  if (name == "fragments") return SetNumber(text, &rule->fragments, is_count, "1 or more");
  if (name == "overlap") return SetNumber(text, &rule->overlap, is_overlap, "0 or more steps");
  if (name == "lr") return SetNumber(text, &rule->rate, is_rate, "more than 0");
  if (name == "momentum") return SetNumber(text, &rule->momentum, IsShare, "in [0, 1)");
  if (name == "nesterov") {
    int value = 0;
    const auto is_flag = [](int flag) { return flag == 0 || flag == 1; };
    std::string problem = SetNumber(text, &value, is_flag, "0 or 1");
    rule->is_nesterov = value == 1;
    return problem;
  }
  if (name == "merge") {
    rule->is_rebase = text == "rebase";
    return rule->is_rebase ? "" : SetNumber(text, &rule->merge, IsShare, "in [0, 1) or rebase");
  }
  return fmt::format("{} is none of every, merge, fragments, overlap, lr, momentum and nesterov",
                     name);
}

std::string ParseOuter(std::string_view text, OuterRule* rule) {
  std::vector<std::string_view> names;
  if (text.empty()) return "is empty: give NAME=VALUE, such as every=30";
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == item.npos) return fmt::format("{} is not NAME=VALUE, as every=30", item);
    const std::string_view name = item.substr(0, equals);
    if (std::ranges::find(names, name) != names.end())
      return fmt::format("{} is given twice", name);
    names.push_back(name);
    const std::string problem = SetMember(name, item.substr(equals + 1), rule);
    if (!problem.empty()) return fmt::format("{}: {}", name, problem);
  }
  if (rule->fragments > rule->every) {
    return fmt::format("fragments={} is more than every={}: each has a step of its own in a round",
                       rule->fragments, rule->every);
  }
  if (rule->overlap >= rule->every) {
    return fmt::format("overlap={} is not below every={}: an average ends before the next begins",
                       rule->overlap, rule->every);
  }
  return "";
}

}  // namespace

void AddOuterOption(CLI::App& app, TrainOptions& options) {
  const OuterRule rule;
  perf::AddParsed(
      app, "--outer",
      fmt::format(
          "adam and lamb: DiLoCo. Ranks step by themselves, and average what they have done\n"
          "every so many steps, with --codec, as NAME=VALUE,...: every [{}], merge: share of\n"
          "its own parameters that a rank keeps, or rebase [{}]; fragments of the model that\n"
          "are averaged at different steps [{}]; overlap: steps while an average is on its\n"
          "way [{}]; lr [{}], momentum [{}] and nesterov [1] of the outer step. --mode is\n"
          "plain then, but with sign and int2",
          rule.every, rule.merge, rule.fragments, rule.overlap, rule.rate, rule.momentum),
      "NAME=VALUE,...", "",
      [&options](const std::string& text) { return ParseOuter(text, &options.outer.emplace()); });
}

void CheckOuter(const CLI::App& app, const TrainOptions& options) {
  if (!options.outer) return;
  if (Compresses(options.optimizer)) {
    throw perf::UsageError(
        fmt::format("--outer: ranks step by themselves, and --optimizer {} averages in every step: "
                    "use adam or lamb",
                    OptimizerName(options.optimizer)));
  }
  RequireUnused(app, {"--overlap"}, "with --outer, where steps send nothing: it has an overlap");
  if (options.survive) {
    throw perf::UsageError(
        "--survive: not with --outer, whose averages would have to be rebound: "
        "onebit.torch.outer goes on without a rank");
  }
  const size_t tensors = LayoutOf(options.shape).tensors().size();
  if (static_cast<size_t>(options.outer->fragments) > tensors) {
    throw perf::UsageError(
        fmt::format("--outer: fragments={} is more than the {} tensors of the model",
                    options.outer->fragments, tensors));
  }
}

onebitMode_t DefaultOuterMode(onebitCodec_t codec) {
  return codec == onebitCodecSign || codec == onebitCodecInt2 ? onebitModeEf : onebitModePlain;
}

std::optional<std::string> OuterWarning(const TrainOptions& options) {
  if (!options.outer || !options.codec || options.mode != onebitModeEf) return std::nullopt;
  const OuterRule& rule = *options.outer;
  const bool is_coarse = DefaultOuterMode(*options.codec) == onebitModeEf;
  if (!is_coarse || rule.momentum == 0 || (!rule.is_rebase && rule.merge >= kLeastMerge)) {
    return std::nullopt;
  }
  return "--outer: momentum amplifies what error feedback of 1 or 2 bits repays late, and losses "
         "end 5 to 11 % higher: give merge=0.5, or momentum=0,lr=1";
}

std::string OuterText(const OuterRule& rule) {
  return fmt::format("every={},merge={},fragments={},overlap={},lr={},momentum={},nesterov={}",
                     rule.every, rule.is_rebase ? "rebase" : fmt::format("{}", rule.merge),
                     rule.fragments, rule.overlap, rule.rate, rule.momentum,
                     rule.is_nesterov ? 1 : 0);
}

}  // namespace onebit::train
