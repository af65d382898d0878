// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Trains the model on all ranks of a communicator, each a thread of this process or a process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "perf/common/comm_handles.h"
#include "perf/common/comm_stats.h"
#include "perf/train_text/text_corpus.h"
#include "perf/train_text/train_options.h"

namespace onebit::train {

struct StepRecord {
  double loss = 0;  // nats per byte before the update, mean over the batches of all ranks
  double lr = 0;
  uint64_t bytes_sent = 0;                 // by rank 0
  onebitStage_t stage = onebitStageDense;  // what it sent, also where it was skipped
  bool is_skipped = false;                 // a gradient overflowed
};

/** An evaluation of the held-out text after a step. */
struct Evaluation {
  int step = 0;        // steps done
  double seconds = 0;  // training time so far on rank 0, without evaluations
  double heldout_loss = 0;
};

/** How the time of the steps was spent, in seconds, mean over the ranks. Evaluation is excluded. */
struct PhaseSeconds {
  double compute = 0;    // batches and gradients
  double optimizer = 0;  // parameter updates, outside collectives
  double codec = 0;      // compression, reduction and decoding inside collectives
  double wire = 0;       // the rest of collectives: sending, receiving, waiting for other ranks
  double exposed = 0;    // with --overlap or --outer: what steps took of the training loop's time
  double total = 0;
};

/** The recovery of a run from the loss of a rank, in seconds of the reporting rank's clock. */
struct Survival {
  Loss loss;
  int resumed_at = 0;            // the step after those that any rank has kept; the first is 1
  double detection_seconds = 0;  // from the start of the call that failed to its error
  double shrink_seconds = 0;
  double rebind_seconds = 0;
  double lost_seconds = 0;     // from the end of the last step before to the end of the first after
  uint64_t lost_elements = 0;  // of residuals
  int ranks_after = 0;
};

/** The averages of a run with --outer, and what rank 0 has sent for them. */
struct OuterResult {
  uint64_t averages = 0;  // of fragments, without those behind the last step
  uint64_t skipped = 0;   // that were not finite
  uint64_t bytes = 0;
  std::optional<uint64_t> bytes_expected;  // by formula; none where hosts have several ranks
};

struct TrainResult {
  std::vector<StepRecord> steps;        // ends with the step that diverged, if one did
  std::vector<Evaluation> evaluations;  // with --eval-every, until the run diverged
  std::optional<int> diverged_at;       // number of that step; the first is 1
  std::optional<double> heldout_loss;   // nats per byte; none after a divergence
  size_t heldout_positions = 0;
  size_t parameter_count = 0;
  uint64_t parameter_hash = 0;                // FNV-1a of the final parameters
  std::vector<uint64_t> bytes_sent_by_rank;   // in all steps and the sync behind them
  std::vector<perf::SentTotal> sent_by_rank;  // with what ranks tell each other besides
  uint64_t final_sync_bytes = 0;              // of these, by rank 0, in that sync
  // Bytes that rank 0 must have sent, by formula; no value if steps differ in what they send.
  std::optional<uint64_t> bytes_expected;
  std::optional<uint64_t> frozen_at;  // the step whose variance was kept
  uint64_t skipped_steps = 0;
  std::optional<OuterResult> outer;  // with --outer
  uint64_t state_bytes = 0;          // held by the optimizer of a rank, most of all ranks
  std::optional<double> lag;         // of a sharded optimizer, most of all ranks: see ShardedAdam
  std::optional<Survival>
      survival;  // with --survive; ranks in by_rank vectors are the remaining ones
  PhaseSeconds seconds;
};

/** Counts of steps by what they sent. A step of 0/1 Adam may be both dense and compressed. */
struct StepCounts {
  uint64_t rounds = 0;  // something
  uint64_t dense = 0;
  uint64_t compressed = 0;
  uint64_t local = 0;  // nothing
};
StepCounts CountSteps(std::span<const StepRecord> steps);

/** Hooks, called on the threads of the ranks; they must not call onebit. Either may be empty. */
struct TrainHooks {
  /** Called on rank 0 after each step, with the number of steps done. */
  std::function<void(int steps_done, const StepRecord& step)> on_step;
  /** Called before each step of each rank. An exception stops the run, as any failure does. */
  std::function<void(int rank, int step)> before_step;
};

/**
 * Runs to the end or to a divergence: a loss that is not finite or is above kDivergedLoss.
 *
 * The result is a function of options and corpus, to the bit: batches come from a counter-based
 * generator, and sums over ranks are taken in rank order. If one rank fails, all are stopped.
 *
 * Throws perf::ToolError, whose text names the rank, the step and the cause.
 */
TrainResult Train(const TrainOptions& options, const Corpus& corpus, const TrainHooks& hooks = {});

/**
 * Runs as the rank that `comm` has, with losses, bytes and parameters equal to the bit, and returns
 * the same result on all ranks. options.ranks is the number of ranks of `comm`. With
 * options.survive, `comm` is replaced by a communicator of the remaining ranks after a loss.
 *
 * The error's is_consequence() is true if another rank is the cause; the others are released.
 */
TrainResult TrainAsProcess(const TrainOptions& options, const Corpus& corpus,
                           const TrainHooks& hooks, perf::CommHandle& comm);

/** Twice the loss of guessing every byte with the same probability, 2 ln 256. */
inline constexpr double kDivergedLoss = 11.09035488895912;

}  // namespace onebit::train
