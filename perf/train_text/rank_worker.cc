// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The loop of one rank: gradient, optimizer step, bookkeeping.
#include "perf/train_text/rank_worker.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include <fmt/core.h>

#include "onebit/onebit.hpp"
#include "perf/common/rank_exchange.h"
#include "perf/train_text/evaluation_schedule.h"
#include "perf/train_text/lr_schedule.h"

namespace onebit::train {
namespace {

using Clock = std::chrono::steady_clock;

/** At most this many positions of the held-out text, spread evenly: a twentieth of a default run.
 */
constexpr size_t kMaxHeldoutPositions = size_t{1} << 15;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Check(onebitResult_t result, const char* call) {
  if (result != onebitSuccess) throw OnebitError(result, call);
}

/** What collectives have taken so far. */
double CallSeconds(onebitComm_t comm) {
  return static_cast<double>(perf::StatsOf(comm).call_ns) * 1e-9;
}

/** Multiplies whole words: a comparison of replicas must not cost more than the step it checks. */
uint64_t HashWords(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  return hash;
}

}  // namespace

OnebitError::OnebitError(onebitResult_t result, const char* call)
    : std::runtime_error(fmt::format("{}: {}", call, onebit::Explain(result))) {}

SharedRun::SharedRun(const TrainOptions& run_options, const Corpus& run_corpus,
                     const TrainHooks& run_hooks)
    : options(run_options),
      corpus(run_corpus),
      hooks(run_hooks),
      are_ranks_processes(run_options.source.is_one_rank()) {
  const size_t per_rank_and_step =
      static_cast<size_t>(options.steps) * static_cast<size_t>(options.ranks);
  losses.resize(per_rank_and_step);
  if (options.check_replicas) replica_hashes.resize(per_rank_and_step);

  // Contexts lie wholly in the held-out part.
  const size_t first = corpus.train_bytes + static_cast<size_t>(options.shape.context);
  const size_t available = corpus.bytes.size() - first;
  heldout_positions.resize(std::min(available, kMaxHeldoutPositions));
  for (size_t i = 0; i < heldout_positions.size(); ++i) {
    heldout_positions[i] = first + i * available / heldout_positions.size();
  }
  heldout_sums.resize((heldout_positions.size() + kEvaluationBatch - 1) / kEvaluationBatch);
}

double SharedRun::MeanLoss(int step) const {
  double sum = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    sum += losses[static_cast<size_t>(step) * static_cast<size_t>(options.ranks) +
                  static_cast<size_t>(rank)];
  }
  return sum / options.ranks;
}

double SharedRun::HeldoutLoss() const {
  double sum = 0;
  for (const double batch_sum : heldout_sums) sum += batch_sum;
  return sum / static_cast<double>(heldout_positions.size());
}

RankWorker::RankWorker(SharedRun& shared, onebitComm_t comm, int rank)
    : shared_(shared),
      comm_(comm),
      rank_(rank),
      model_(shared.options.shape, std::max(shared.options.batch, kEvaluationBatch)),
      parameters_(model_.layout().parameter_count()),
      gradient_(parameters_.size(), shared.options.gradient_type, shared.options.gradient_scale()),
      positions_(static_cast<size_t>(shared.options.batch)),
      batch_random_(shared.options.seed, RandomStream::kBatches, static_cast<uint64_t>(rank)) {
  steps_.reserve(static_cast<size_t>(shared.options.steps));
  // Every rank computes the same initial parameters; a broadcast is not needed.
  model_.Initialize(shared.options.seed, parameters_);
  CreateOptimizer();
}

void RankWorker::CreateOptimizer() {
  const TrainOptions& options = shared_.options;
  onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compressor.mode = options.mode;
  compressor.scaleRule = options.scale_rule;
  compressor.block = options.block;
  compressor.residualType = options.residual_type;
  compressor.serverResidual = options.server_residual ? 1 : 0;

  std::vector<onebitSegment_t> segments;
  for (const Tensor& tensor : model_.layout().tensors) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = tensor.offset;
    segment.count = tensor.count();
    segments.push_back(segment);
  }

  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.beta1 = options.beta1;
  config.beta2 = options.beta2;
  config.weightDecay = options.weight_decay;
  config.varianceFloor = options.variance_floor;
  config.freezeStep = options.freeze_step();
  config.lrWarmupSteps = options.warmup_steps;
  config.compressor = &compressor;
  config.segments = segments.data();
  config.segmentCount = segments.size();

  onebitOptimizer_t optimizer = nullptr;
  Check(onebitOptimizerCreate(&optimizer, comm_, parameters_.size(), parameters_.data(), &config),
        "onebitOptimizerCreate");
  optimizer_.reset(optimizer);
}

void RankWorker::Run() {
  if (shared_.are_ranks_processes) exchange_seconds_ = CallSeconds(comm_);  // before the first step
  const TrainOptions& options = shared_.options;
  const EvaluationSchedule evaluations{options.evaluate_every_percent, options.steps};
  Clock::time_point start = Clock::now();  // or the end of the last evaluation
  for (int step = 0; step < options.steps && !has_diverged_; ++step) {
    current_step_ = step;
    if (shared_.hooks.before_step) shared_.hooks.before_step(rank_, step);
    RunStep(step);
    if (rank_ == 0 && shared_.hooks.on_step) shared_.hooks.on_step(step + 1, steps_.back());
    if (has_diverged_ || !evaluations.IsDue(step + 1)) continue;
    seconds_.total += SecondsSince(start);
    Evaluate();
    evaluations_.push_back({step + 1, seconds_.total, shared_.HeldoutLoss()});
    start = Clock::now();
  }
  seconds_.total += SecondsSince(start);
  ReadStats();
  if (!has_diverged_ && evaluations_.empty()) Evaluate();  // else the last step was evaluated
}

void RankWorker::Evaluate() {
  EvaluateShare();
  const double before = CallSeconds(comm_);
  if (shared_.are_ranks_processes) {
    ExchangeShares();
  } else {
    // All shares are there, and remain until all ranks have entered the next step's collective.
    Check(onebitBarrier(comm_, nullptr), "onebitBarrier");
  }
  exchange_seconds_ += CallSeconds(comm_) - before;
}

void RankWorker::DrawBatch(int step) {
  const auto context = static_cast<size_t>(shared_.options.shape.context);
  const uint64_t choices = shared_.corpus.train_bytes - context;
  const uint64_t first = static_cast<uint64_t>(step) * positions_.size();
  for (size_t i = 0; i < positions_.size(); ++i) {
    positions_[i] = context + batch_random_.Below(first + i, choices);
  }
}

void RankWorker::RunStep(int step) {
  const TrainOptions& options = shared_.options;
  const size_t first_slot = static_cast<size_t>(step) * static_cast<size_t>(options.ranks);
  const size_t slot = first_slot + static_cast<size_t>(rank_);
  const Clock::time_point start = Clock::now();
  DrawBatch(step);
  shared_.losses[slot] =
      model_.MeanLossAndGradient(parameters_, shared_.corpus.bytes, positions_, gradient_.values());
  void* gradient = gradient_.Converted();
  seconds_.compute += SecondsSince(start);

  const LrSchedule schedule{options.lr, options.warmup_steps, options.steps};
  StepRecord record;
  record.lr = schedule.Rate(step);
  onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
  const Clock::time_point step_start = Clock::now();
  Check(
      onebitOptimizerStep(optimizer_.get(), gradient, options.gradient_type, record.lr,
                          1.0 / options.gradient_scale(), options.max_grad_norm, &result, nullptr),
      "onebitOptimizerStep");
  seconds_.optimizer += SecondsSince(step_start);

  if (options.check_replicas) shared_.replica_hashes[slot] = HashWords(parameters_);
  // A rank leaves the step's collective only after all ranks have entered it, so the losses of all
  // threads are there; those of processes are sent. All ranks come to the same verdict.
  if (shared_.are_ranks_processes) ExchangeStep(first_slot);
  record.loss = shared_.MeanLoss(step);
  record.bytes_sent = result.bytes_sent;
  record.stage = static_cast<onebitStage_t>(result.stage);
  record.is_skipped = result.skipped != 0;
  steps_.push_back(record);
  has_diverged_ = !(record.loss <= kDivergedLoss);  // true for NaN
}

void RankWorker::ReadStats() {
  optimizer_stats_ = {};
  optimizer_stats_.size = sizeof(optimizer_stats_);
  Check(onebitOptimizerGetStats(optimizer_.get(), &optimizer_stats_), "onebitOptimizerGetStats");
  const onebitCommStats_t stats = perf::StatsOf(comm_);
  const double call_seconds = static_cast<double>(stats.call_ns) * 1e-9 - exchange_seconds_;
  seconds_.codec = static_cast<double>(stats.codec_ns) * 1e-9;
  seconds_.wire = call_seconds - seconds_.codec;
  seconds_.optimizer -= call_seconds;
}

void RankWorker::EvaluateShare() {
  // Every batch has a sum of its own, so that the total does not depend on the number of ranks.
  for (size_t batch = static_cast<size_t>(rank_); batch < shared_.heldout_sums.size();
       batch += static_cast<size_t>(shared_.options.ranks)) {
    const std::span<const size_t> positions(shared_.heldout_positions);
    const size_t first = batch * kEvaluationBatch;
    const size_t count = std::min<size_t>(kEvaluationBatch, positions.size() - first);
    shared_.heldout_sums[batch] =
        model_.LossSum(parameters_, shared_.corpus.bytes, positions.subspan(first, count));
  }
}

void RankWorker::ExchangeStep(size_t first_slot) {
  struct Found {
    double loss;
    uint64_t replica_hash;
  };
  const size_t slot = first_slot + static_cast<size_t>(rank_);
  const bool has_hashes = !shared_.replica_hashes.empty();
  const double before = CallSeconds(comm_);
  const std::vector<Found> all = perf::GatherRecords(
      comm_, Found{shared_.losses[slot], has_hashes ? shared_.replica_hashes[slot] : 0});
  exchange_seconds_ += CallSeconds(comm_) - before;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    shared_.losses[first_slot + rank] = all[rank].loss;
    if (has_hashes) shared_.replica_hashes[first_slot + rank] = all[rank].replica_hash;
  }
}

void RankWorker::ExchangeShares() {
  const auto ranks = static_cast<size_t>(shared_.options.ranks);
  for (size_t owner = 0; owner < ranks; ++owner) {
    std::vector<double> sums = shared_.heldout_sums;
    perf::BroadcastBytes(comm_, std::as_writable_bytes(std::span(sums)), static_cast<int>(owner));
    for (size_t batch = owner; batch < sums.size(); batch += ranks) {
      shared_.heldout_sums[batch] = sums[batch];
    }
  }
}

uint64_t RankWorker::parameter_hash() const { return HashWords(parameters_); }

}  // namespace onebit::train
