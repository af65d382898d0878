// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares replicas, and takes sums and means over the ranks.
#include "perf/train_text/run_result.h"

#include <algorithm>

#include <fmt/core.h>

namespace onebit::train {

RankSummary SummaryOf(const RankWorker& worker) {
  return {.parameters = perf::HashBytes(std::as_bytes(worker.parameters())),
          .bytes_sent = worker.optimizer_stats().bytes_sent,
          .sent = worker.sent(),
          .seconds = worker.seconds(),
          .state_bytes = worker.optimizer_stats().state_bytes,
          .lag = worker.lag().value_or(-1)};
}

void CheckReplicas(const SharedRun& shared, std::span<const RankSummary> ranks) {
  const size_t slots = shared.steps_of_rank.size();  // of a step
  const auto first = static_cast<size_t>(shared.members[0]);
  for (size_t i = 0; i < shared.replica_hashes.size(); ++i) {
    const size_t step = i / slots;
    const size_t rank = i % slots;
    if (static_cast<int>(step) >= shared.steps_of_rank[rank]) continue;
    if (shared.replica_hashes[i] == shared.replica_hashes[step * slots + first]) continue;
    throw perf::ToolError(fmt::format(
        "parameters of rank {} differ from those of rank {} after step {}", rank, first, step + 1));
  }
  for (size_t index = 1; index < ranks.size(); ++index) {
    if (ranks[index].parameters == ranks[0].parameters) continue;
    throw perf::ToolError(
        fmt::format("parameters of rank {} differ from those of rank {} at the end",
                    shared.members[index], first));
  }
}

StepCounts CountSteps(std::span<const StepRecord> steps) {
  StepCounts counts;
  for (const StepRecord& step : steps) {
    const bool is_both = step.stage == onebitStageBoth;
    if (step.stage != onebitStageLocal) ++counts.rounds;
    if (is_both || step.stage == onebitStageDense) ++counts.dense;
    if (is_both || step.stage == onebitStageCompressed) ++counts.compressed;
    if (step.stage == onebitStageLocal) ++counts.local;
  }
  return counts;
}

TrainResult JoinResults(const SharedRun& shared, const RankWorker& worker,
                        std::span<const RankSummary> ranks) {
  TrainResult result;
  result.steps = worker.steps();
  result.evaluations = worker.evaluations();
  result.parameter_count = worker.parameters().size();
  result.parameter_hash = worker.parameter_hash();
  result.survival = worker.survival();
  result.outer = worker.outer();
  result.final_sync_bytes = worker.final_sync_bytes();
  result.bytes_expected = worker.bytes_expected();
  result.skipped_steps = worker.optimizer_stats().skipped;
  if (const uint64_t step = worker.optimizer_stats().frozen_at; step > 0) result.frozen_at = step;
  if (worker.has_diverged()) {
    result.diverged_at = static_cast<int>(result.steps.size());
  } else {
    result.heldout_positions = shared.HeldoutBytes();
    result.heldout_loss = shared.HeldoutLoss();
  }
  const double share = 1.0 / static_cast<double>(ranks.size());
  for (const RankSummary& rank : ranks) {
    result.bytes_sent_by_rank.push_back(rank.bytes_sent);
    result.sent_by_rank.push_back(rank.sent);
    result.state_bytes = std::max(result.state_bytes, rank.state_bytes);
    if (rank.lag >= 0) result.lag = std::max(result.lag.value_or(0), rank.lag);
    result.seconds.compute += share * rank.seconds.compute;
    result.seconds.optimizer += share * rank.seconds.optimizer;
    result.seconds.codec += share * rank.seconds.codec;
    result.seconds.wire += share * rank.seconds.wire;
    result.seconds.exposed += share * rank.seconds.exposed;
    result.seconds.total += share * rank.seconds.total;
  }
  return result;
}

}  // namespace onebit::train
