// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Declares the options to CLI11 and checks their combinations. Ranges of policy parameters are the
// library's to check.
#include "perf/onebit_schedule/schedule_options.h"

#include <cfloat>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "perf/common/flag_kinds.h"
#include "perf/common/tool_error.h"

namespace onebit::schedule {
namespace {

using perf::Decay;
using perf::RateSchedule;

constexpr uint64_t kMaxStep = 100'000'000;  // kept in memory, a character each

const perf::Names<int32_t> kAlgorithms = {{"onebit-adam", onebitAlgorithmOneBitAdam},
                                          {"onebit-lamb", onebitAlgorithmOneBitLamb},
                                          {"zero-one-adam", onebitAlgorithmZeroOneAdam}};
const perf::Names<int32_t> kVariants = {{"paper", onebitVariantPaper},
                                        {"deepspeed", onebitVariantDeepSpeed}};
const perf::Names<int32_t> kGradients = {{"fp16", 16}, {"fp32", 32}};
const perf::Names<Decay> kSimpleDecays = {
    {"constant", Decay::kConstant}, {"cosine", Decay::kCosine}, {"linear", Decay::kLinear}};

const std::vector<std::string> kRateFlags = {"--lr", "--lr-warmup", "--lr-decay", "--total-steps"};

std::string ParseSteps(const std::string& text, ScheduleOptions* options) {
  if (!perf::ParsePair(text, ':', &options->first, &options->last) ||
      options->first > options->last) {
    return fmt::format("{} is not a range of steps like 1:100", text);
  }
  if (options->last > kMaxStep) return fmt::format("more than {} steps", kMaxStep);
  return "";
}

std::string ParseDecay(const std::string& text, RateSchedule* rates) {
  for (const auto& [name, decay] : kSimpleDecays) {
    if (text == name) {
      rates->decay = decay;
      return "";
    }
  }
  constexpr std::string_view kExponential = "exponential:";
  if (text.starts_with(kExponential) &&
      perf::ParsePair(std::string_view(text).substr(kExponential.size()), ':', &rates->factor,
                      &rates->decay_steps) &&
      rates->factor >= 0 && rates->factor <= 1 && rates->decay_steps >= 1) {
    rates->decay = Decay::kExponential;
    return "";
  }
  return fmt::format(
      "{} is not constant, cosine, linear or exponential:FACTOR:STEPS with a factor up to 1", text);
}

void AddSteps(CLI::App& app, const std::string& flag, const std::string& help, int64_t* steps) {
  app.add_option(flag, *steps, help)->type_name("N");
}

void AddPolicyOptions(CLI::App& app, ScheduleOptions* options) {
  onebitPolicyConfig_t& policy = options->policy;
  perf::AddChoice(app, "--algorithm", kAlgorithms, &policy.algorithm, "method");
  perf::AddChoice(app, "--variant", kVariants, &policy.variant,
                  "as published, or as DeepSpeed computes it");
  AddSteps(app, "--freeze-step", "1-bit Adam, 1-bit LAMB: the last dense step", &policy.freezeStep);
  AddSteps(app, "--var-freeze-step", "0/1 Adam: end of the refreshes [end of --lr-warmup]",
           &policy.varFreezeStep);
  AddSteps(app, "--var-update-scaler", "0/1 Adam: refreshes until their distance doubles [16]",
           &policy.varUpdateScaler);
  AddSteps(app, "--local-step-scaler", "0/1 Adam: steps until the sync interval doubles [32678]",
           &policy.localStepScaler);
  AddSteps(app, "--local-step-clipper", "0/1 Adam: longest sync interval [16]",
           &policy.localStepClipper);
  AddSteps(app, "--local-step-start", "0/1 Adam: every step before it syncs [--var-freeze-step]",
           &policy.localStepStart);
  app.add_flag_callback(
      "--rate-tied", [&policy] { policy.rateTied = 1; },
      "0/1 Adam: the sync interval grows as the learning rate falls");
  app.add_flag_callback(
      "--dense-step-feeds-momentum", [&policy] { policy.denseStepFeedsMomentum = 1; },
      "0/1 Adam: a refresh needs no one-bit average");
}

void AddRateOptions(CLI::App& app, ScheduleOptions* options) {
  RateSchedule& rates = options->rates;
  app.add_option("--lr", rates.peak, "0/1 Adam: learning rate at its peak; 0, or with --rate-tied")
      ->check(perf::Number("a number of 0 or more",
                           [](double rate) { return rate >= 0 && rate <= FLT_MAX; }))
      ->type_name("RATE")
      ->capture_default_str();
  app.add_option("--lr-warmup", rates.warmup_steps, "0/1 Adam: steps of a linear warm-up")
      ->check(CLI::Range(uint64_t{0}, kMaxStep).description(""))
      ->type_name("N")
      ->capture_default_str();
  perf::AddParsed(app, "--lr-decay",
                  "with --rate-tied: constant, cosine, linear, or times FACTOR every STEPS steps",
                  "constant|cosine|linear|exponential:FACTOR:STEPS", "constant",
                  [options](const std::string& text) {
                    options->decay = text;
                    return ParseDecay(text, &options->rates);
                  });
  app.add_option("--total-steps", rates.total_steps,
                 "end of a cosine or linear decay [end of --steps]")
      ->check(CLI::Range(uint64_t{1}, kMaxStep).description(""))
      ->type_name("N");
}

std::string FirstGiven(const CLI::App& app, const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    if (app.count(flag) > 0) return flag;
  }
  return "";
}

// Without --rate-tied, learning rates matter in one way only: a sync waits while they are 0. For
// that --lr 0 is enough.
void CheckRates(const CLI::App& app, const ScheduleOptions& options) {
  if (options.policy.algorithm != onebitAlgorithmZeroOneAdam) {
    const std::string flag = FirstGiven(app, kRateFlags);
    if (!flag.empty()) {
      throw perf::UsageError(flag + ": the steps of this method do not depend on learning rates");
    }
    return;
  }
  if (options.policy.rateTied == 1) return;
  const std::string flag = FirstGiven(app, {"--lr-decay", "--total-steps"});
  if (!flag.empty()) {
    throw perf::UsageError(flag + " needs --rate-tied: otherwise steps do not depend on the decay");
  }
  if (app.count("--lr") > 0 && options.rates.peak > 0) {
    throw perf::UsageError("--lr needs --rate-tied: otherwise it matters only whether it is 0");
  }
  if (app.count("--lr-warmup") > 0 && app.count("--var-freeze-step") > 0) {
    throw perf::UsageError(
        "--lr-warmup needs --rate-tied: otherwise it only stands in for --var-freeze-step");
  }
}

// An option without effect is an error. (Those of learning rates are taken together: with --rate-
// tied only their ratios and zeros count, but nobody has to give ratios.)
void CheckTogether(const CLI::App& app, const ScheduleOptions& options) {
  if (app.count("--steps") == 0) throw perf::UsageError("--steps A:B must be given, as in 1:100");
  CheckRates(app, options);
  if (options.policy.algorithm != onebitAlgorithmZeroOneAdam) {
    const bool is_automatic = options.policy.freezeStep == ONEBIT_FREEZE_AUTOMATIC ||
                              options.policy.freezeStep == ONEBIT_FREEZE_SETTLED ||
                              (options.policy.freezeStep == ONEBIT_UNDEF_STEP &&
                               options.policy.variant != onebitVariantDeepSpeed);
    if (is_automatic) {
      throw perf::UsageError(
          "--freeze-step N must be given: the automatic freeze depends on the gradients");
    }
  }
  const bool has_end =
      options.rates.decay == Decay::kCosine || options.rates.decay == Decay::kLinear;
  if (app.count("--total-steps") > 0 && !has_end) {
    throw perf::UsageError("--total-steps is the end of --lr-decay cosine or linear");
  }
}

}  // namespace

const char* NameOfAlgorithm(int32_t algorithm) { return perf::NameOf(kAlgorithms, algorithm); }
const char* NameOfVariant(int32_t variant) { return perf::NameOf(kVariants, variant); }

std::optional<ScheduleOptions> ParseOptions(int argc, const char* const* argv) {
  ScheduleOptions options;
  CLI::App app(
      "Prints what each step of an optimizer sends, and how much that is.\n"
      "  F full precision, 1 one bit per element, B both, u one bit for a sync after DeepSpeed's\n"
      "  freeze, . nothing, i the step that DeepSpeed swallows",
      "onebit_schedule");
  perf::AddParsed(app, "--steps", "first and last step; 0/1 Adam of the paper counts from 0", "A:B",
                  "", [&](const std::string& text) { return ParseSteps(text, &options); });
  AddPolicyOptions(app, &options);
  AddRateOptions(app, &options);
  perf::AddChoice(app, "--gradients", kGradients, &options.dense_bits,
                  "type of what is averaged densely");
  app.add_flag("--volume", options.is_volume, "print the totals only");
  app.add_option("--json", options.json_path, "write a report to this file")->type_name("FILE");
  if (!perf::ParseCommandLine(app, argc, argv)) return std::nullopt;
  CheckTogether(app, options);
  if (app.count("--lr-warmup") > 0) {
    options.policy.lrWarmupSteps = static_cast<int64_t>(options.rates.warmup_steps);
  }
  const bool is_from_one = options.policy.variant == onebitVariantDeepSpeed;
  if (options.rates.total_steps == 0) {
    options.rates.total_steps = options.last + (is_from_one ? 0 : 1);
  }
  return options;
}

}  // namespace onebit::schedule
