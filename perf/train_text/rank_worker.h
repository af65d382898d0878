// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a run: its replica of the parameters, its batches, its optimizer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "perf/common/comm_stats.h"
#include "perf/common/handles.h"
#include "perf/train_text/gradient_buffer.h"
#include "perf/train_text/model.h"
#include "perf/train_text/onebit_error.h"
#include "perf/train_text/optimizers.h"
#include "perf/train_text/options.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** Positions of the held-out text are evaluated in batches of this size. */
inline constexpr int kEvaluationBatch = 512;

/** Memory aligned for vectors, so that every run splits loops into vectors alike. */
template <typename T>
using AlignedVector = std::vector<T, Eigen::aligned_allocator<T>>;

/**
 * What all ranks of a run share. Each element of the vectors is written by one rank only. Where the
 * others are processes, each has its own, and the ranks send each other what they have written.
 */
struct SharedRun {
  const TrainOptions& options;
  const Corpus& corpus;
  const TrainHooks& hooks;
  const bool are_ranks_processes;
  // The ranks of the communicator in use, by the numbers they had at the start.
  std::vector<int> members;
  std::vector<int> steps_of_rank;        // [rank]: of the first so many its slots count
  std::vector<double> losses;            // [step][rank], of ranks as at the start
  std::vector<uint64_t> replica_hashes;  // likewise, with --check-replicas
  std::vector<size_t> heldout_positions;
  std::vector<double> heldout_sums;  // one per batch of heldout_positions

  SharedRun(const TrainOptions& run_options, const Corpus& run_corpus, const TrainHooks& run_hooks);

  /** Mean over the members, in rank order; valid on every rank once the step's collectives
   * returned. */
  double MeanLoss(int step) const;

  /** Nats per byte, from the sums of all batches. */
  double HeldoutLoss() const;
};

/** What of a worker's steps others may lack. It travels between processes as it is. */
struct StepsDone {
  int kept = 0;             // steps whose update this rank has
  int recorded = 0;         // steps whose losses it has from all
  int evaluated = 0;        // steps after which the held-out text was evaluated last
  uint64_t bytes_sent = 0;  // in the last one that was kept
  onebitStage_t stage = onebitStageDense;
  bool is_skipped = false;
};

/** Driven by one thread, its rank's. All functions throw OnebitError, perf::ToolError or what hooks
 * throw. */
class RankWorker {
 public:
  /** `comm` is borrowed and outlives the worker. */
  RankWorker(SharedRun& shared, onebitComm_t comm, int rank);

  /**
   * All steps, then and now the held-out text, of which this rank evaluates its share. After an
   * error, and once Resume has returned, it goes on. All ranks end with the same parameters;
   * before that, between two syncs of 0/1 Adam, each evaluates its share with its own, and the
   * loss is the mean over them.
   */
  void Run();

  /**
   * Goes on after the loss of a rank: makes a communicator of the ranks that remain, gives all the
   * state of the one that is furthest, and tells what it took. The caller destroys the former one.
   */
  perf::CommHandle Resume();

  // Results, valid after Run.
  const std::vector<StepRecord>& steps() const { return steps_; }
  /** Their seconds are of this rank's clock. */
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  bool has_diverged() const { return has_diverged_; }
  std::span<const float> parameters() const { return parameters_; }
  uint64_t parameter_hash() const;
  const PhaseSeconds& seconds() const { return seconds_; }
  /** Over all communicators. */
  perf::SentTotal sent() const;
  uint64_t final_sync_bytes() const { return final_sync_bytes_; }
  const std::optional<uint64_t>& bytes_expected() const { return bytes_expected_; }
  const onebitOptimizerStats_t& optimizer_stats() const { return optimizer_stats_; }
  /** The step that is running, or the last one. */
  int current_step() const { return current_step_; }
  const std::optional<Survival>& survival() const { return survival_; }

 private:
  using Clock = std::chrono::steady_clock;
  class ExchangeTimer;

  void DrawBatch(int step);
  void RunStep(int step);
  double RateOf(int step) const;
  onebitResult_t Update(int step, Clock::time_point start, onebitStepResult_t* result);
  void Record(int step);
  void Meet(int step);
  void EndStep();
  void AgreeOnParameters();
  void EvaluateIfDue();
  void TakeUp(int source);
  double CallSeconds() const;
  size_t FirstSlot(int step) const;
  void ReadStats();
  std::optional<uint64_t> BytesExpected() const;
  void Evaluate();
  void EvaluateShare();
  void ExchangeStep(int step);
  void ExchangeShares();

  SharedRun& shared_;
  onebitComm_t comm_;
  const int rank_;              // at the start: what batches and slots go by
  size_t place_;                // now: its number in comm_
  onebitCommStats_t former_{};  // of communicators that were given up
  ByteModel<float> model_;
  AlignedVector<float> parameters_;
  GradientBuffer gradient_;
  std::vector<size_t> positions_;
  CounterRandom batch_random_;
  Optimizers optimizers_;

  int current_step_ = 0;
  StepsDone done_;
  double update_seconds_ = 0;     // of the last step
  Clock::time_point call_start_;  // of the step's first collective
  Clock::time_point step_end_;    // of the last step that was recorded
  std::optional<Survival> survival_;
  bool is_first_after_loss_ = false;  // the next step to be recorded
  Clock::time_point start_;           // or the end of the last evaluation
  bool has_diverged_ = false;
  std::vector<StepRecord> steps_;
  std::vector<Evaluation> evaluations_;
  PhaseSeconds seconds_;
  double exchange_seconds_ = 0;  // inside collectives that are not training
  uint64_t messages_sent_ = 0;   // by those that are, but with --overlap
  uint64_t final_sync_bytes_ = 0;
  std::optional<uint64_t> bytes_expected_;
  onebitOptimizerStats_t optimizer_stats_{};
};

}  // namespace onebit::train
