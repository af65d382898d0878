// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a run: its replica of the parameters, its batches, its optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include <Eigen/Core>

#include "onebit/onebit.h"
#include "onebit/optim.h"
#include "perf/common/comm_stats.h"
#include "perf/train_text/gradient_buffer.h"
#include "perf/train_text/model.h"
#include "perf/train_text/options.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/trainer.h"

namespace onebit::train {

/** Positions of the held-out text are evaluated in batches of this size. */
inline constexpr int kEvaluationBatch = 512;

/** Memory aligned for vectors, so that every run splits loops into vectors alike. */
template <typename T>
using AlignedVector = std::vector<T, Eigen::aligned_allocator<T>>;

/** A call of the library failed. */
class OnebitError : public std::runtime_error {
 public:
  /** Call it on the thread of the failed call: its text is kept per thread. */
  OnebitError(onebitResult_t result, const char* call);
};

/**
 * What all ranks of a run share. Each element of the vectors is written by one rank only. Where the
 * others are processes, each has its own, and the ranks send each other what they have written.
 */
struct SharedRun {
  const TrainOptions& options;
  const Corpus& corpus;
  const TrainHooks& hooks;
  const bool are_ranks_processes;
  std::vector<double> losses;            // [step][rank]
  std::vector<uint64_t> replica_hashes;  // [step][rank], with --check-replicas
  std::vector<size_t> heldout_positions;
  std::vector<double> heldout_sums;  // one per batch of heldout_positions

  SharedRun(const TrainOptions& run_options, const Corpus& run_corpus, const TrainHooks& run_hooks);

  /** Mean over the ranks, in rank order; valid on every rank once the step's collectives returned.
   */
  double MeanLoss(int step) const;

  /** Nats per byte, from the sums of all batches. */
  double HeldoutLoss() const;
};

/** Driven by one thread, its rank's. All functions throw OnebitError or what hooks throw. */
class RankWorker {
 public:
  /** `comm` is borrowed and outlives the worker. */
  RankWorker(SharedRun& shared, onebitComm_t comm, int rank);

  /** All steps, then and now the held-out text, of which this rank evaluates its share. */
  void Run();

  // Results, valid after Run.
  const std::vector<StepRecord>& steps() const { return steps_; }
  /** Their seconds are of this rank's clock. */
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }
  bool has_diverged() const { return has_diverged_; }
  std::span<const float> parameters() const { return parameters_; }
  uint64_t parameter_hash() const;
  const PhaseSeconds& seconds() const { return seconds_; }
  perf::SentTotal sent() const { return perf::SentBy(comm_); }
  const onebitOptimizerStats_t& optimizer_stats() const { return optimizer_stats_; }
  /** The step that is running, or the last one. */
  int current_step() const { return current_step_; }

 private:
  struct OptimizerDeleter {
    void operator()(onebitOptimizer_t optimizer) const { onebitOptimizerDestroy(optimizer); }
  };

  void CreateOptimizer();
  void DrawBatch(int step);
  void RunStep(int step);
  void ReadStats();
  void Evaluate();
  void EvaluateShare();
  void ExchangeStep(size_t first_slot);
  void ExchangeShares();

  SharedRun& shared_;
  onebitComm_t comm_;
  int rank_;
  ByteModel<float> model_;
  AlignedVector<float> parameters_;
  GradientBuffer gradient_;
  std::vector<size_t> positions_;
  CounterRandom batch_random_;
  std::unique_ptr<onebitOptimizer_s, OptimizerDeleter> optimizer_;

  int current_step_ = 0;
  bool has_diverged_ = false;
  std::vector<StepRecord> steps_;
  std::vector<Evaluation> evaluations_;
  PhaseSeconds seconds_;
  double exchange_seconds_ = 0;  // inside collectives that are not training
  onebitOptimizerStats_t optimizer_stats_{};
};

}  // namespace onebit::train
