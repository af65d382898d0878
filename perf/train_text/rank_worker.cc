// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The loop of one rank: gradient, optimizer step, bookkeeping.
#include "perf/train_text/rank_worker.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include <fmt/core.h>

#include "onebit/onebit.hpp"
#include "perf/common/rank_exchange.h"
#include "perf/common/rate_schedule.h"
#include "perf/common/seconds.h"
#include "perf/train_text/evaluation_schedule.h"
#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/sent_bytes.h"
#include "perf/train_text/victim.h"

namespace onebit::train {
namespace {

/**
 * Predicts at most this many bytes of the held-out text, spread evenly: a twentieth of a default
 * run.
 */
constexpr size_t kMaxHeldoutBytes = size_t{1} << 15;

/** Multiplies whole words: comparing replicas must not cost more than the step it checks. */
uint64_t HashWords(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  return hash;
}

/**
 * The parameters are the same on every rank without a broadcast. They are needed before the
 * optimizer is created, because 0/1 Adam remembers its starting point.
 */
AlignedVector<float> InitialParameters(const Model<float>& model, uint64_t seed) {
  AlignedVector<float> parameters(model.layout().parameter_count());
  model.Initialize(seed, parameters);
  return parameters;
}

}  // namespace

SharedRun::SharedRun(const TrainOptions& run_options, const Corpus& run_corpus,
                     const TrainHooks& run_hooks)
    : options(run_options),
      corpus(run_corpus),
      hooks(run_hooks),
      are_ranks_processes(run_options.source.is_one_rank()),
      members(static_cast<size_t>(run_options.ranks)),
      steps_of_rank(members.size(), run_options.steps) {
  std::iota(members.begin(), members.end(), 0);
  const size_t per_rank_and_step =
      static_cast<size_t>(options.steps) * static_cast<size_t>(options.ranks);
  losses.resize(per_rank_and_step);
  if (options.check_replicas) replica_hashes.resize(per_rank_and_step);

  // Contexts lie wholly in the held-out part.
  const size_t first = corpus.train_bytes + static_cast<size_t>(options.shape.context);
  const size_t available = corpus.bytes.size() - first;
  const auto predictions = static_cast<size_t>(PredictionsOf(options.shape));
  heldout_positions.resize(
      std::min(available, std::max<size_t>(1, kMaxHeldoutBytes / predictions)));
  for (size_t i = 0; i < heldout_positions.size(); ++i) {
    heldout_positions[i] = first + i * available / heldout_positions.size();
  }
  positions_per_batch = std::max<size_t>(1, kEvaluationBatch / predictions);
  heldout_sums.resize((heldout_positions.size() + positions_per_batch - 1) / positions_per_batch);
}

double SharedRun::MeanLoss(int step) const {
  double sum = 0;
  for (const int rank : members) {
    sum += losses[static_cast<size_t>(step) * static_cast<size_t>(options.ranks) +
                  static_cast<size_t>(rank)];
  }
  return sum / static_cast<double>(members.size());
}

size_t SharedRun::HeldoutBytes() const {
  return heldout_positions.size() * static_cast<size_t>(PredictionsOf(options.shape));
}

double SharedRun::HeldoutLoss() const {
  double sum = 0;
  for (const double batch_sum : heldout_sums) sum += batch_sum;
  return sum / static_cast<double>(HeldoutBytes());
}

RankWorker::RankWorker(SharedRun& shared, onebitComm_t comm, int rank)
    : shared_(shared),
      comm_(comm),
      rank_(rank),
      comm_rank_(static_cast<size_t>(rank)),
      model_(
          MakeModel<float>(shared.options.shape, std::max(shared.options.batch, kEvaluationBatch))),
      parameters_(InitialParameters(*model_, shared.options.seed)),
      gradient_(parameters_.size(), shared.options.gradient_type, shared.options.gradient_scale()),
      positions_(static_cast<size_t>(shared.options.batch)),
      batch_random_(shared.options.seed, RandomStream::kBatches, static_cast<uint64_t>(rank)),
      optimizers_(shared.options, comm, model_->layout(), parameters_) {
  steps_.reserve(static_cast<size_t>(shared.options.steps));
  if (!shared.options.outer) return;
  std::vector<size_t> sizes;
  for (const Tensor& tensor : model_->layout().tensors()) sizes.push_back(tensor.count());
  const onebitCompressorConfig_t codec = CompressorConfigOf(shared.options);
  outer_.emplace(*shared.options.outer, comm, sizes, parameters_,
                 shared.options.codec ? &codec : nullptr);
}

void RankWorker::Run() {
  if (!survival_) {
    // A rank that died earlier would end one that has no worker yet, and cannot go on without it.
    if (shared_.options.survive) perf::Check(onebitBarrier(comm_, nullptr), "onebitBarrier");
    if (shared_.are_ranks_processes) exchange_seconds_ = CallSeconds();  // before the first step
    step_end_ = start_ = Clock::now();
  }
  const TrainOptions& options = shared_.options;
  EndStep();  // what it was interrupted in
  for (int step = done_.kept; step < options.steps && !has_diverged_; ++step) {
    current_step_ = step;
    if (shared_.hooks.before_step) shared_.hooks.before_step(rank_, step);
    RunStep(step);
    if (comm_rank_ == 0 && shared_.hooks.on_step) shared_.hooks.on_step(step + 1, steps_.back());
    EndStep();
  }
  seconds_.total += perf::SecondsSince(start_);
  ReadStats();
  if (!has_diverged_ && evaluations_.empty()) Evaluate();  // else the last step was evaluated
}

void RankWorker::EndStep() {
  if (has_diverged_ || done_.recorded == shared_.options.steps) AgreeOnParameters();
  EvaluateIfDue();
}

// The run may end between two syncs. This sync makes the final parameters equal, and its bytes
// count as part of the run.
void RankWorker::AgreeOnParameters() {
  const Clock::time_point start = Clock::now();
  call_start_ = start;
  if (outer_) {
    final_sync_bytes_ += outer_->Flush();
    seconds_.exposed += perf::SecondsSince(start);
    return;
  }
  const perf::SentTotal before = sent();
  optimizers_.Sync();
  const perf::SentTotal after = sent();
  final_sync_bytes_ += after.bytes - before.bytes;
  messages_sent_ += after.messages - before.messages;
  seconds_.optimizer += perf::SecondsSince(start);
}

void RankWorker::EvaluateIfDue() {
  const EvaluationSchedule schedule{shared_.options.evaluate_every_percent, shared_.options.steps};
  const int steps = done_.recorded;
  if (has_diverged_ || steps == done_.evaluated || !schedule.IsDue(steps)) return;
  const double before = seconds_.total;
  seconds_.total += perf::SecondsSince(start_);
  try {
    Evaluate();
  } catch (...) {
    seconds_.total = before;  // it goes on from start_
    throw;
  }
  evaluations_.push_back({steps, seconds_.total, shared_.HeldoutLoss()});
  done_.evaluated = steps;
  start_ = Clock::now();
}

// Counts its lifetime as exchange time, also if the call fails. The counters stay readable as long
// as the handle exists.
class RankWorker::ExchangeTimer {
 public:
  explicit ExchangeTimer(RankWorker& worker) : worker_(worker), before_(worker.CallSeconds()) {}
  ~ExchangeTimer() { worker_.exchange_seconds_ += worker_.CallSeconds() - before_; }
  ExchangeTimer(const ExchangeTimer&) = delete;
  ExchangeTimer& operator=(const ExchangeTimer&) = delete;

 private:
  RankWorker& worker_;
  const double before_;
};

void RankWorker::Evaluate() {
  EvaluateShare();
  const ExchangeTimer timer(*this);
  if (shared_.are_ranks_processes) {
    ExchangeShares();
  } else {
    // All shares are complete now, and stay valid until all ranks have entered the next step's
    // collective.
    perf::Check(onebitBarrier(comm_, nullptr), "onebitBarrier");
  }
}

double RankWorker::CallSeconds() const {
  return static_cast<double>(former_.call_ns + perf::StatsOf(comm_).call_ns) * 1e-9;
}

size_t RankWorker::FirstSlot(int step) const {
  return static_cast<size_t>(step) * static_cast<size_t>(shared_.options.ranks);
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
  const Clock::time_point start = Clock::now();
  DrawBatch(step);
  call_start_ = start;
  Model<float>::OnLayer on_layer;
  if (options.is_overlapped) {
    on_layer = [this, rate = RateOf(step)](size_t layer) {
      const std::span<const Tensor> tensors = model_->layout().LayerTensors(layer);
      const size_t begin = tensors.front().offset;
      const size_t end = tensors.back().offset + tensors.back().count();
      optimizers_.Start(layer, gradient_.Converted(begin, end - begin), rate);
    };
  }
  shared_.losses[FirstSlot(step) + static_cast<size_t>(rank_)] = model_->MeanLossAndGradient(
      parameters_, shared_.corpus.bytes, positions_, gradient_.values(), on_layer);
  onebitStepResult_t result = ONEBIT_STEP_RESULT_INIT;
  if (options.is_overlapped) {
    const Clock::time_point end = Clock::now();
    seconds_.compute += std::chrono::duration<double>(end - start).count();
    perf::Check(optimizers_.Finish(&result), "onebitOptimizerStep");
    seconds_.exposed += perf::SecondsSince(end);
  } else {
    perf::Check(Update(step, start, &result), "onebitOptimizerStep");
  }
  if (outer_) StepOuter(&result);
  done_.kept = step + 1;
  done_.result(step) = {.bytes_sent = result.bytes_sent,
                        .stage = static_cast<onebitStage_t>(result.stage),
                        .is_skipped = result.skipped != 0};
  Record(step);
}

// The step's result becomes that of the averages that have ended in it.
void RankWorker::StepOuter(onebitStepResult_t* result) {
  call_start_ = Clock::now();
  const uint64_t before = outer_->bytes();
  const bool has_ended = outer_->Step();
  const bool is_compressed = shared_.options.codec.has_value();
  result->stage = !has_ended      ? onebitStageLocal
                  : is_compressed ? onebitStageCompressed
                                  : onebitStageDense;
  result->bytes_sent = outer_->bytes() - before;
  seconds_.exposed += perf::SecondsSince(call_start_);
}

// Steps all parameters once the whole gradient is available.
onebitResult_t RankWorker::Update(int step, Clock::time_point start, onebitStepResult_t* result) {
  void* gradient = gradient_.Converted();
  seconds_.compute += perf::SecondsSince(start);
  const std::optional<Loss>& loss = shared_.options.survive;
  const bool is_victim = loss && loss->rank == rank_ && loss->step == step + 1;
  std::jthread end;
  // Half the duration of the last step is the best guess for the middle of this one.
  if (is_victim) end = DieIn(update_seconds_ / 2);
  const uint64_t messages_before = sent().messages;
  call_start_ = Clock::now();
  const onebitResult_t status = optimizers_.Step(gradient, RateOf(step), result);
  if (is_victim) Die();  // the step was faster than guessed
  update_seconds_ = perf::SecondsSince(call_start_);
  seconds_.optimizer += update_seconds_;
  messages_sent_ += sent().messages - messages_before;
  return status;
}

double RankWorker::RateOf(int step) const {
  const TrainOptions& options = shared_.options;
  const perf::RateSchedule rates = {.peak = options.lr,
                                    .warmup_steps = static_cast<uint64_t>(options.warmup_steps),
                                    .decay = perf::Decay::kCosine,
                                    .total_steps = static_cast<uint64_t>(options.steps)};
  return rates.At(static_cast<uint64_t>(step));
}

void RankWorker::Record(int step) {
  if (shared_.options.check_replicas) {
    // Replicas differ after a local step. A step that is recorded again after a loss may have
    // another one behind it, and the parameters between the two are gone.
    const bool is_comparable =
        done_.result(step).stage != onebitStageLocal && step + 1 == done_.kept;
    uint64_t& hash = shared_.replica_hashes[FirstSlot(step) + static_cast<size_t>(rank_)];
    hash = is_comparable ? HashWords(parameters_) : 0;
    if (outer_) hash = HashWords(outer_->values());  // which are equal after every step
  }
  call_start_ = Clock::now();
  ShareLosses(step);
  StepRecord record;
  record.lr = RateOf(step);
  record.loss = shared_.MeanLoss(step);
  record.bytes_sent = done_.result(step).bytes_sent;
  record.stage = done_.result(step).stage;
  record.is_skipped = done_.result(step).is_skipped;
  steps_.push_back(record);
  done_.recorded = step + 1;
  has_diverged_ = !(record.loss <= kDivergedLoss);  // true for NaN
  const Clock::time_point now = Clock::now();
  if (is_first_after_loss_) {
    survival_->lost_seconds = std::chrono::duration<double>(now - step_end_).count();
    is_first_after_loss_ = false;
  }
  step_end_ = now;
}

// Shares the losses of all ranks, so all come to the same verdict. Processes broadcast them.
// Threads leave the step's collective only after all have entered it, and so have written their
// losses; if a step has no collective, or one that goes on behind it, this one stands in for it.
void RankWorker::ShareLosses(int step) {
  if (shared_.are_ranks_processes) {
    ExchangeStep(step);
  } else if (done_.result(step).stage == onebitStageLocal || outer_) {
    const ExchangeTimer timer(*this);
    perf::Check(onebitBarrier(comm_, nullptr), "onebitBarrier");
  }
}

void RankWorker::ReadStats() {
  optimizer_stats_ = optimizers_.Stats();
  if (outer_) {
    ReadOuterStats();
    return;
  }
  bytes_expected_ = BytesExpected();
  onebitCommStats_t stats = perf::StatsOf(comm_);
  stats.call_ns += former_.call_ns;
  stats.codec_ns += former_.codec_ns;
  const double call_seconds = static_cast<double>(stats.call_ns) * 1e-9 - exchange_seconds_;
  seconds_.codec = static_cast<double>(stats.codec_ns) * 1e-9;
  seconds_.wire = call_seconds - seconds_.codec;
  seconds_.optimizer += optimizers_.started_seconds() - call_seconds;
}

// Calls run beside the inner steps, whose time they are no part of.
void RankWorker::ReadOuterStats() {
  const onebitCommStats_t stats = outer_->Stats();
  seconds_.codec = static_cast<double>(stats.codec_ns) * 1e-9;
  seconds_.wire = static_cast<double>(stats.call_ns) * 1e-9 - seconds_.codec;
  optimizer_stats_.bytes_sent = stats.bytes_sent;
  optimizer_stats_.state_bytes += outer_->state_bytes();
  OuterResult& result = outer_result_.emplace();
  for (const OuterOptimizer::Sent& sent : outer_->SentByFragments()) {
    result.averages += sent.averages;
  }
  result.skipped = outer_->skipped();
  result.bytes = stats.bytes_sent - final_sync_bytes_;
  if (stats.two_level_calls > 0) return;  // whose bytes the formula does not know
  result.bytes_expected = ExpectedOuterBytes(shared_.options, perf::CountOf(comm_), *outer_);
}

std::optional<uint64_t> RankWorker::BytesExpected() const {
  const TrainOptions& options = shared_.options;
  // The formula does not know the hosts of ranks, on which the bytes of two levels depend.
  const bool are_steps_alike =
      !options.is_overlapped && options.max_grad_norm == 0 && options.lr > 0 && !options.survive &&
      optimizer_stats_.skipped == 0 && perf::StatsOf(comm_).two_level_calls == 0;
  if (!are_steps_alike) return std::nullopt;
  if (const ShardedAdam* const sharded = optimizers_.sharded()) return sharded->ExpectedBytes();
  const StepCounts counts = CountSteps(steps_);
  const uint64_t final_syncs = final_sync_bytes_ > 0 ? 1 : 0;
  return ExpectedBytes(options, CompressedShape(options, comm_, model_->layout()),
                       {.dense = counts.dense,
                        .compressed = counts.compressed + final_syncs,
                        .messages = messages_sent_});
}

std::optional<double> RankWorker::lag() const {
  const ShardedAdam* const sharded = optimizers_.sharded();
  return sharded == nullptr ? std::nullopt : std::optional(sharded->lag());
}

void RankWorker::EvaluateShare() {
  const std::span<const float> parameters = outer_ ? outer_->values() : parameters_;
  // Every batch has a sum of its own, so that the total does not depend on the number of ranks.
  for (size_t batch = comm_rank_; batch < shared_.heldout_sums.size();
       batch += shared_.members.size()) {
    const std::span<const size_t> positions(shared_.heldout_positions);
    const size_t first = batch * shared_.positions_per_batch;
    const size_t count = std::min(shared_.positions_per_batch, positions.size() - first);
    shared_.heldout_sums[batch] =
        model_->LossSum(parameters, shared_.corpus.bytes, positions.subspan(first, count));
  }
}

void RankWorker::ExchangeStep(int step) {
  struct Found {
    double loss;
    uint64_t replica_hash;
  };
  const size_t first_slot = FirstSlot(step);
  const size_t slot = first_slot + static_cast<size_t>(rank_);
  const bool has_hashes = !shared_.replica_hashes.empty();
  const ExchangeTimer timer(*this);
  const std::vector<Found> all = perf::GatherRecords(
      comm_, Found{shared_.losses[slot], has_hashes ? shared_.replica_hashes[slot] : 0});
  for (size_t index = 0; index < all.size(); ++index) {
    const auto rank = static_cast<size_t>(shared_.members[index]);
    shared_.losses[first_slot + rank] = all[index].loss;
    if (has_hashes) shared_.replica_hashes[first_slot + rank] = all[index].replica_hash;
  }
}

void RankWorker::ExchangeShares() {
  const size_t ranks = shared_.members.size();
  for (size_t owner = 0; owner < ranks; ++owner) {
    std::vector<double> sums = shared_.heldout_sums;
    perf::BroadcastBytes(comm_, std::as_writable_bytes(std::span(sums)), static_cast<int>(owner));
    for (size_t batch = owner; batch < sums.size(); batch += ranks) {
      shared_.heldout_sums[batch] = sums[batch];
    }
  }
}

perf::SentTotal RankWorker::sent() const {
  perf::SentTotal now = perf::SentBy(comm_);
  if (outer_) {
    now.bytes += outer_->Stats().bytes_sent;
    now.messages += outer_->Stats().messages_sent;
  }
  return {former_.bytes_sent + now.bytes, former_.messages_sent + now.messages};
}

uint64_t RankWorker::parameter_hash() const { return HashWords(parameters_); }

}  // namespace onebit::train
