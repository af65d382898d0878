// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Texts and JSON of a run.
#include "perf/train_text/train_report.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "perf/train_text/config_report.h"
#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/step_kinds.h"

namespace onebit::train {
namespace {

constexpr size_t kTableRows = 10;

// JSON numbers cannot hold 64-bit hashes.
std::string Hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

const char* StageName(onebitStage_t stage) {
  switch (stage) {
    case onebitStageDense:
      return "dense";
    case onebitStageCompressed:
      return "compressed";
    case onebitStageBoth:
      return "both";
    case onebitStageLocal:
      return "local";
  }
  return "?";
}

uint64_t TotalBytes(const TrainResult& result) { return result.bytes_sent_by_rank[0]; }

std::string DescribeSurvival(const Survival& survival) {
  return fmt::format(
      "survived       the loss of rank {} in step {}: {} ranks went on at step {}, {} residuals "
      "lost\n"
      "               {:.3f} s from the last step to the next: detected in {:.3f}, shrunk in "
      "{:.3f}, "
      "rebound in {:.3f}\n",
      survival.loss.rank, survival.loss.step, survival.ranks_after, survival.resumed_at,
      survival.lost_elements, survival.lost_seconds, survival.detection_seconds,
      survival.shrink_seconds, survival.rebind_seconds);
}

std::string DescribeOuter(const TrainResult& result, const PhaseSeconds& seconds) {
  const OuterResult& outer = *result.outer;
  const std::string formula = outer.bytes_expected
                                  ? fmt::format("{} by formula", *outer.bytes_expected)
                                  : "no formula where hosts have several ranks";
  return fmt::format(
      "outer          {} averages of fragments, {} of them skipped: {} bytes per rank, {}; {} in "
      "the flush\n"
      "               {:.2f} s of {:.2f} s in steps and averages were exposed\n",
      outer.averages, outer.skipped, outer.bytes, formula, result.final_sync_bytes, seconds.exposed,
      seconds.total);
}

nlohmann::ordered_json SurvivalJson(const Survival& survival) {
  return {{"rank", survival.loss.rank},
          {"step", survival.loss.step},
          {"resumed_at", survival.resumed_at},
          {"detection_seconds", survival.detection_seconds},
          {"shrink_seconds", survival.shrink_seconds},
          {"rebind_seconds", survival.rebind_seconds},
          {"lost_seconds", survival.lost_seconds},
          {"lost_elements", survival.lost_elements},
          {"ranks_after", survival.ranks_after}};
}

}  // namespace

std::string DescribeRun(const TrainOptions& options, const Corpus& corpus) {
  return fmt::format(
      "text       {}: {} files, {} bytes, FNV-1a {}, the last {} bytes held out\n"
      "model      {} parameters: {}\n"
      "optimizer  {}\n"
      "run        {} ranks ({}, transport {}) x batch {}, {} steps, lr {}, seed {}\n",
      options.text_path, corpus.file_count, corpus.bytes.size(), Hex(corpus.hash),
      corpus.bytes.size() - corpus.train_bytes, LayoutOf(options.shape).parameter_count(),
      DescribeModel(options.shape), DescribeOptimizer(options), options.ranks,
      options.source.is_one_rank() ? "processes" : "threads", options.transport, options.batch,
      options.steps, options.lr, options.seed);
}

std::string Summarize(const TrainOptions& options, const TrainResult& result) {
  std::string text =
      fmt::format("\n{:>8}  {:<10}  {:>8}  {:>14}\n", "step", "stage", "loss", "bytes in step");
  const size_t steps = result.steps.size();
  const size_t rows = std::min(steps, kTableRows);
  for (size_t row = 1; row <= rows; ++row) {
    const size_t step = row * steps / rows;
    const StepRecord& record = result.steps[step - 1];
    text += fmt::format("{:>8}  {:<10}  {:>8.4f}  {:>14}\n", step, StageName(record.stage),
                        record.loss, record.bytes_sent);
  }
  text += "\n";
  if (result.heldout_loss) {
    text += fmt::format("held-out loss  {:.4f} nats per byte, over {} positions\n",
                        *result.heldout_loss, result.heldout_positions);
  } else {
    text += fmt::format("diverged at step {}: loss {:.4g}\n", *result.diverged_at,
                        result.steps.back().loss);
  }
  if (Compresses(options.optimizer)) {
    text += result.frozen_at
                ? fmt::format("variance       frozen after step {}\n", *result.frozen_at)
                : "variance       never frozen\n";
  }
  if (result.skipped_steps > 0) {
    text +=
        fmt::format("skipped        {} steps whose gradients overflowed\n", result.skipped_steps);
  }
  if (result.lag) {
    text += fmt::format("lag            {:.3g} at most, of what ranks hold behind the parameters\n",
                        *result.lag);
  }
  if (result.survival) text += DescribeSurvival(*result.survival);
  const PhaseSeconds& seconds = result.seconds;
  const StepCounts counts = CountSteps(result.steps);
  text += fmt::format(
      "rounds         {} of {} steps sent something: {} dense, {} compressed\n"
      "bytes sent     {} per rank\n"
      "memory         {} bytes of the optimizer per rank, {:.1f} per parameter\n"
      "seconds        {:.2f} = compute {:.2f} + optimizer {:.2f} + codec {:.2f} + wire {:.2f} + "
      "rest\n",
      counts.rounds, steps, counts.dense, counts.compressed, TotalBytes(result), result.state_bytes,
      static_cast<double>(result.state_bytes) / static_cast<double>(result.parameter_count),
      seconds.total, seconds.compute, seconds.optimizer, seconds.codec, seconds.wire);
  if (result.outer) text += DescribeOuter(result, seconds);
  if (options.is_overlapped) {
    const double steps = seconds.optimizer + seconds.codec + seconds.wire;
    text += fmt::format(
        "overlap        {:.2f} of {:.2f} s of optimizer, codec and wire went on during compute\n",
        std::max(0.0, steps - seconds.exposed), steps);
  }
  return text + perf::SentText(result.sent_by_rank);
}

std::string ToJson(const TrainOptions& options, const Corpus& corpus, const TrainResult& result) {
  nlohmann::ordered_json json;
  json["optimizer"] = OptimizerName(options.optimizer);
  json["mode"] = ModeName(options);
  json["nranks"] = options.ranks;
  json["transport"] = options.transport;
  json["seed"] = options.seed;
  json["config"] = ConfigJson(options);
  json["text"] = {{"path", options.text_path},
                  {"files", corpus.file_count},
                  {"bytes", corpus.bytes.size()},
                  {"fnv1a", Hex(corpus.hash)},
                  {"heldout_bytes", corpus.bytes.size() - corpus.train_bytes}};
  json["parameters"] = result.parameter_count;
  json["parameters_fnv1a"] = Hex(result.parameter_hash);
  json["steps"] = nlohmann::ordered_json::array();
  const std::string kinds = StepKinds(options, result.steps);
  for (size_t i = 0; i < result.steps.size(); ++i) {
    const StepRecord& step = result.steps[i];
    json["steps"].push_back({{"step", i + 1},
                             {"loss", step.loss},
                             {"bytes_sent", step.bytes_sent},
                             {"lr", step.lr},
                             {"stage", StageName(step.stage)},
                             {"kind", std::string(1, kinds[i])},
                             {"skipped", step.is_skipped}});
  }
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const Evaluation& evaluation : result.evaluations) {
    json["evaluations"].push_back({{"step", evaluation.step},
                                   {"seconds", evaluation.seconds},
                                   {"heldout_loss", evaluation.heldout_loss}});
  }
  // This version of the library has no conversion of std::optional to JSON.
  json["heldout_loss"] = nullptr;
  json["diverged_at"] = nullptr;
  json["frozen_at"] = nullptr;
  if (result.heldout_loss) json["heldout_loss"] = *result.heldout_loss;
  if (result.diverged_at) json["diverged_at"] = *result.diverged_at;
  if (result.frozen_at) json["frozen_at"] = *result.frozen_at;
  json["heldout_positions"] = result.heldout_positions;
  json["skipped_steps"] = result.skipped_steps;
  json["state_bytes_per_rank"] = result.state_bytes;
  if (result.lag) json["lag"] = *result.lag;
  if (result.survival) json["survival"] = SurvivalJson(*result.survival);
  if (result.outer) {
    json["outer"] = {{"averages", result.outer->averages},
                     {"skipped", result.outer->skipped},
                     {"bytes", result.outer->bytes},
                     {"bytes_expected", nullptr}};
    if (result.outer->bytes_expected) {
      json["outer"]["bytes_expected"] = *result.outer->bytes_expected;
    }
  }
  const StepCounts counts = CountSteps(result.steps);
  json["schedule"] = kinds;
  json["rounds"] = counts.rounds;
  json["dense_steps"] = counts.dense;
  json["compressed_steps"] = counts.compressed;
  json["local_steps"] = counts.local;
  json["final_sync_bytes"] = result.final_sync_bytes;
  json["bytes_sent_per_rank"] = TotalBytes(result);
  json["bytes_expected"] = nullptr;
  if (result.bytes_expected) json["bytes_expected"] = *result.bytes_expected;
  json["bytes_sent_by_rank"] = result.bytes_sent_by_rank;
  json["seconds"] = {{"compute", result.seconds.compute},
                     {"optimizer", result.seconds.optimizer},
                     {"codec", result.seconds.codec},
                     {"wire", result.seconds.wire},
                     {"total", result.seconds.total}};
  if (options.is_overlapped || options.outer) json["seconds"]["exposed"] = result.seconds.exposed;
  return json.dump(2) + "\n";
}

}  // namespace onebit::train
