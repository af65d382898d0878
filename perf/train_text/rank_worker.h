// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a run: its replica of the parameters, its batches, its optimizer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "perf/common/comm_handles.h"
#include "perf/common/comm_stats.h"
#include "perf/common/tool_error.h"
#include "perf/train_text/counter_random.h"
#include "perf/train_text/gradient_buffer.h"
#include "perf/train_text/model.h"
#include "perf/train_text/optimizers.h"
#include "perf/train_text/outer_optimizer.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** Bytes of the held-out text are predicted in batches of this size. */
inline constexpr int kEvaluationBatch = 512;

/** Memory aligned for vectors, so every run splits loops into vectors alike. */
template <typename T>
using AlignedVector = std::vector<T, Eigen::aligned_allocator<T>>;

/**
 * The data that all ranks of a run share. Each element of the vectors is written by one rank only.
 * Ranks that are processes have a copy each, and send each other what they have written.
 */
struct SharedRun {
  const TrainOptions& options;
  const Corpus& corpus;
  const TrainHooks& hooks;
  const bool are_ranks_processes;
  // The ranks of the current communicator, by their numbers at the start.
  std::vector<int> members;
  std::vector<int> steps_of_rank;        // [rank]: of the first so many its slots count
  std::vector<double> losses;            // [step][rank], of ranks as at the start
  std::vector<uint64_t> replica_hashes;  // likewise, with --check-replicas
  std::vector<size_t> heldout_positions;
  size_t positions_per_batch;        // of them
  std::vector<double> heldout_sums;  // one per batch of heldout_positions

  SharedRun(const TrainOptions& run_options, const Corpus& run_corpus, const TrainHooks& run_hooks);

  /** Mean over the members, in rank order; valid on every rank once the step's collectives
   * returned. */
  double MeanLoss(int step) const;

  /** Bytes of the held-out text that are predicted. */
  size_t HeldoutBytes() const;
  /** Returns nats per byte, from the sums of all batches. */
  double HeldoutLoss() const;
};

/**
 * The progress of a worker, which other ranks may lack. It is sent between processes as raw bytes.
 */
struct StepsDone {
  struct Result {
    uint64_t bytes_sent = 0;
    onebitStage_t stage = onebitStageDense;
    bool is_skipped = false;
  };
  int kept = 0;       // steps whose update this rank has
  int recorded = 0;   // steps whose losses it has from all
  int evaluated = 0;  // steps after which the held-out text was evaluated last
  // The results of the last two steps that were kept, by parity. To keep a step, a rank must have
  // the losses of the one before from all others, which may then lack that one's record: it is made
  // again with the next.
  Result results[2];

  Result& result(int step) { return results[step % 2]; }
};

/**
 * Driven by the thread of its rank. All functions throw perf::ToolError, or whatever
 * hooks throw.
 */
class RankWorker {
 public:
  /** `comm` is borrowed and outlives the worker. */
  RankWorker(SharedRun& shared, onebitComm_t comm, int rank);

  /**
   * Runs all steps and the scheduled evaluations, of which this rank does its share. It may be
   * called again after an error, once Resume has returned. All ranks end with the same parameters.
   * Between two syncs of 0/1 Adam replicas differ, so each rank evaluates with its own and the loss
   * is the mean. With --outer it is that of the global parameters, which all ranks end with.
   */
  void Run();

  /**
   * Recovers from the loss of a rank: makes a communicator of the remaining ranks, brings all to
   * the state of the one that is furthest, and returns the communicator. The caller destroys the
   * former one.
   */
  perf::CommHandle Resume();

  // Results, valid after Run.
  const std::vector<StepRecord>& steps() const { return steps_; }
  /** Seconds are of this rank's clock. */
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  bool has_diverged() const { return has_diverged_; }
  std::span<const float> parameters() const { return parameters_; }
  uint64_t parameter_hash() const;
  const PhaseSeconds& seconds() const { return seconds_; }
  /** Summed over all communicators. */
  perf::SentTotal sent() const;
  uint64_t final_sync_bytes() const { return final_sync_bytes_; }
  const std::optional<uint64_t>& bytes_expected() const { return bytes_expected_; }
  const onebitOptimizerStats_t& optimizer_stats() const { return optimizer_stats_; }
  const std::optional<OuterResult>& outer() const { return outer_result_; }
  /** The lag of a sharded optimizer (ShardedAdam); none for others. */
  std::optional<double> lag() const;
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
  void StepOuter(onebitStepResult_t* result);
  void Record(int step);
  void ShareLosses(int step);
  void EndStep();
  void AgreeOnParameters();
  void EvaluateIfDue();
  void ResumeFrom(int source);
  double CallSeconds() const;
  size_t FirstSlot(int step) const;
  void ReadStats();
  void ReadOuterStats();
  std::optional<uint64_t> BytesExpected() const;
  void Evaluate();
  void EvaluateShare();
  void ExchangeStep(int step);
  void ExchangeShares();

  SharedRun& shared_;
  onebitComm_t comm_;
  const int rank_;              // at the start: what batches and slots go by
  size_t comm_rank_;            // now: its number in comm_
  onebitCommStats_t former_{};  // of communicators that were given up
  std::unique_ptr<Model<float>> model_;
  AlignedVector<float> parameters_;
  GradientBuffer gradient_;
  std::vector<size_t> positions_;
  CounterRandom batch_random_;
  Optimizers optimizers_;
  std::optional<OuterOptimizer> outer_;

  int current_step_ = 0;
  StepsDone done_;
  double update_seconds_ = 0;  // of the last step
  // Start of the step's first collective; before the first step, of this worker.
  Clock::time_point call_start_ = Clock::now();
  Clock::time_point step_end_;  // of the last step that was recorded
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
  std::optional<OuterResult> outer_result_;
  onebitOptimizerStats_t optimizer_stats_{};
};

}  // namespace onebit::train
