// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "perf/onebit_schedule/schedule_report.h"

#include <algorithm>

#include <fmt/format.h>

namespace onebit::schedule {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kStepsPerRow = 10;

// Reports the parameters that were set, by their option names; the rest has the library's defaults.
Json ConfigJson(const ScheduleOptions& options) {
  const onebitPolicyConfig_t& policy = options.policy;
  Json config = {{"algorithm", NameOfAlgorithm(policy.algorithm)},
                 {"variant", NameOfVariant(policy.variant)},
                 {"dense_bits", options.dense_bits}};
  const auto add_steps = [&](const char* name, int64_t steps) {
    if (steps != ONEBIT_UNDEF_STEP) config[name] = steps;
  };
  if (policy.algorithm == onebitAlgorithmZeroOneAdam) {
    config["lr"] = options.rates.peak;
    config["lr_decay"] = options.decay;
    config["total_steps"] = options.rates.total_steps;
    config["rate_tied"] = policy.rateTied == 1;
    config["dense_step_feeds_momentum"] = policy.denseStepFeedsMomentum == 1;
  }
  add_steps("freeze_step", policy.freezeStep);
  add_steps("lr_warmup", policy.lrWarmupSteps);
  add_steps("var_freeze_step", policy.varFreezeStep);
  add_steps("var_update_scaler", policy.varUpdateScaler);
  add_steps("local_step_scaler", policy.localStepScaler);
  add_steps("local_step_clipper", policy.localStepClipper);
  add_steps("local_step_start", policy.localStepStart);
  return config;
}

}  // namespace

std::string RowsText(const Steps& steps) {
  const size_t width = std::max<size_t>(3, fmt::formatted_size("{}", steps.last));
  std::string text;
  for (size_t begin = 0; begin < steps.kinds.size(); begin += kStepsPerRow) {
    const size_t end = std::min(begin + kStepsPerRow, steps.kinds.size());
    text += fmt::format("{:>{}}-{:>{}} ", steps.first + begin, width, steps.first + end - 1, width);
    for (size_t i = begin; i < end; ++i) {
      text += ' ';
      text += steps.kinds[i];
    }
    text += '\n';
  }
  return text;
}

std::string VolumeText(const Steps& steps, int dense_bits) {
  const StepCounts& counts = steps.counts;
  std::string kinds;
  for (const char kind : kKinds) {
    if (counts.of(kind) == 0) continue;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", kind, counts.of(kind));
  }
  const double bits_per_step = BitsPerStep(counts, dense_bits);
  return fmt::format(
      "steps {}-{}: {}; {} bits per element, {:.4g} a step; {:.1f} % of the rounds saved; {:.2f}x "
      "less than fp{}\n",
      steps.first, steps.last, kinds, TotalBits(counts, dense_bits), bits_per_step,
      100 * RoundsSaved(counts), Reduction(bits_per_step, dense_bits), dense_bits);
}

Json ToJson(const ScheduleOptions& options, const Steps& steps) {
  const StepCounts& counts = steps.counts;
  Json by_kind;
  for (const char kind : kKinds) by_kind[std::string(1, kind)] = counts.of(kind);
  const double bits_per_step = BitsPerStep(counts, options.dense_bits);
  return {{"config", ConfigJson(options)},
          {"first", steps.first},
          {"last", steps.last},
          {"kinds", steps.kinds},
          {"counts", std::move(by_kind)},
          {"dense_steps", counts.dense()},
          {"compressed_steps", counts.compressed()},
          {"rounds", counts.rounds()},
          {"rounds_saved", RoundsSaved(counts)},
          {"bits_per_element", TotalBits(counts, options.dense_bits)},
          {"bits_per_element_and_step", bits_per_step},
          {"reduction", Reduction(bits_per_step, options.dense_bits)}};
}

}  // namespace onebit::schedule
