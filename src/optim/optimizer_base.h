// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: how a step runs, what ranks agree on, how state is taken over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/optimizer_calls.h"
#include "base/state_blob.h"
#include "base/status.h"
#include "kernels/optimizer.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "optim/arithmetic.h"
#include "optim/options.h"
#include "optim/saved_optimizer.h"
#include "optim/segment_table.h"
#include "optim/state_list.h"
#include "optim/trust_ratio.h"

namespace onebit::optim {

// Arguments of one step, checked.
struct StepInput {
  void* gradients = nullptr;  // null: zeros, in a step that sends nothing
  kernels::DataType type = kernels::DataType::kF32;
  double learning_rate = 0;
  double grad_scale = 1;
  double max_grad_norm = 0;  // 0: not measured
};

// What it did.
struct StepOutcome {
  bool is_skipped = false;
  onebitStage_t stage = onebitStageDense;
  double grad_norm = -1;
  uint64_t bytes_sent = 0;
};

// A client of the public API and the kernels. A step has three parts, in this order, so that
// nothing ever has to be undone:
//   1. what can fail or be non-finite and is dense: the norm, then averages of gradients;
//   2. the compressed average, which commits residuals;
//   3. the update of m, v, x and counters, which cannot fail on the host. A device that breaks in
//      it leaves the optimizer torn.
// A verdict "not finite" after 1 or 2 is the same on every rank, since it is read from bytes that
// are the same on every rank; the step then ends there.
//
// All functions that touch elements are called between Begin, or BeginAlone, and End of the
// arithmetic. One thread at a time.
class Optimizer {
 public:
  // Where, how and what for.
  struct Setup {
    onebitComm_t comm;
    size_t count;
    float* parameters;
    const Options& options;
    SegmentTable table;
    std::unique_ptr<Arithmetic> arithmetic;
  };

  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The last call, before the destructor: waits until nothing works on memory of this any more, but
  // not for ever. By the destructor of this class buffers of derived ones would be gone already.
  void Settle();

  // Outputs are written only on success.
  Status Step(const StepInput& input, StepOutcome* outcome);

  // Goes over to another communicator, of ranks of the present one. Collective on it. Returns the
  // rank whose state all have afterwards. rebind.cc
  Result<int> Rebind(onebitComm_t comm);

  // Makes ranks agree on all state, where a step does not. Collective.
  Status Sync();

  // Back to where the variance is refreshed by dense averages, as onebitOptimizerRewarm says.
  // Local. After an error nothing has changed.
  Status Rewarm(int64_t steps);

  // Of kind kOptimizerRank or kOptimizerGlobal. Exporting the latter is collective, makes ranks
  // agree first, and gives all the same bytes. `blob` has StateBytes; its content is undefined
  // after an error. checkpoint.cc
  Result<size_t> StateBytes(StateKind kind);
  Status Export(StateKind kind, std::span<std::byte> blob);
  // Local. After an error the optimizer is what it was. checkpoint.cc
  Status Import(std::span<const std::byte> blob);

  // Fills everything but `size`.
  void GetStats(onebitOptimizerStats_t* stats) const;

  // Nothing for algorithms that have no trust ratios.
  virtual std::optional<TrustRatio> trust_ratio(size_t /*segment*/) const { return std::nullopt; }

  // Copies of all elements of m and v, where not null.
  Status ReadMoments(float* m, float* v);

  Arithmetic& arithmetic() const { return *arithmetic_; }
  const SegmentTable& table() const { return table_; }
  size_t count() const { return count_; }
  uint64_t step() const { return step_; }

 protected:
  explicit Optimizer(Setup setup);

  // Moments and, unless nothing will ever be compressed, the compressor of `element_count`
  // elements. The last to allocate: creating a compressor takes a number of the communicator, also
  // on the other ranks.
  Status AllocateMoments();
  Status CreateCompressor(size_t element_count, const onebitCompressorConfig_t* config);
  onebitCompressorConfig_t CompressorHere(const onebitCompressorConfig_t* config) const;
  // The communicator must exist: CheckComm asks whether it still does.
  void ObserveComm() { observer_ = CommObserver::Create(comm_); }

  // ---- what an algorithm does

  // What the next step sends, at this learning rate.
  virtual onebitStage_t NextStage(double learning_rate) const = 0;
  // Everything a step needs memory for, before anything is sent.
  virtual Status PrepareStep(const StepInput& input) = 0;
  // All averages of a step that sends something. A false result is the verdict "not finite".
  virtual Result<bool> Average(const StepInput& input, float scale) = 0;
  // The update of m, v, x and everything else but the counters below.
  virtual Status Commit(const StepInput& input, float scale) = 0;
  // Instead of Commit, where the verdict was "not finite". Returns whether anything changed: it may
  // take collectives, and after an error nothing has.
  virtual Result<bool> Skip(const StepInput& /*input*/) { return false; }
  // What Sync does, where ranks may have come apart. Returns the stage of a step that sends as
  // much, onebitStageLocal where there was nothing to do.
  virtual Result<onebitStage_t> AgreeOnState() { return onebitStageLocal; }
  // What Rewarm does.
  virtual Status BeginWarmup(int64_t steps) = 0;
  // Settles what follows from state that was replaced: masks, floors.
  virtual Status PrepareCompressor() { return OkStatus(); }
  virtual void ForgetDerivedState() {}
  virtual void ListState(StateList* list);
  // Whether values that were replaced can be those of this optimizer.
  virtual Status CheckState() const;
  // What the last onebitOptimizerRewarm was told, or the configuration, where that matters.
  virtual int64_t freeze_rule() const { return 0; }
  // Takes the place of a state that differs in nothing that must be equal. After an error nothing
  // has changed.
  virtual Status Adopt(const SavedOptimizer& saved);
  virtual void AddStats(onebitOptimizerStats_t* stats) const = 0;

  // ---- what it does that with

  Status CheckComm() const;
  // Marks the state as neither old nor new, for an error of a device in between.
  Status Torn(Status status);
  // Averages over ranks, in place. False if squares of scaled averages leave fp32.
  Result<bool> AverageDense(void* gradients, size_t count, kernels::DataType type, float scale);
  // Compressed. False if any rank had a value that is not finite.
  Result<bool> AverageCompressed(float* values, size_t count);
  Status ResetCompressor();
  // Dense segments' gradients, joined.
  void PackDenseGradients(const StepInput& input, std::byte* out) const;
  // The caller's mask of one segment, where kernels can read it.
  const uint8_t* user_mask(const Segment& segment) const {
    return user_masks_.size() == 0
               ? table_.user_mask(segment)
               : reinterpret_cast<const uint8_t*>(user_masks_.data()) + segment.mask_offset;
  }
  // x, m, v and what the configuration says of one segment.
  kernels::AdamUpdate UpdateOf(const Segment& segment, double learning_rate) const;
  double Correction(double beta_power) const;
  // The low-precision copy, from parameters that came from elsewhere than an update.
  Status WriteParameterCopy() const;
  std::span<float> parameters() const { return {parameters_, count_}; }
  const float* m() const { return reinterpret_cast<const float*>(m_.data()); }
  const float* v() const { return reinterpret_cast<const float*>(v_.data()); }

  const Options options_;
  const SegmentTable table_;
  const std::unique_ptr<Arithmetic> arithmetic_;
  onebitComm_t comm_;
  const size_t count_;
  float* const parameters_;
  int rank_ = 0;
  int ranks_ = 0;

  Memory m_, v_;
  onebitCompressor_t compressor_ = nullptr;  // null when nothing will ever be compressed
  uint64_t step_ = 0;                        // t, of steps that have happened
  double beta1_power_ = 1;                   // beta1^t
  double beta2_power_ = 1;

 private:
  Status StepAlone(StepInput input, StepOutcome* outcome);
  Status CommitOrTear(const StepInput& input, float scale);
  Status InStep(const Status& status) const;
  void CountStep(onebitStage_t stage);
  void CountCommit(onebitStage_t stage);
  Status CheckWhole() const;
  Result<double> ScaledSumOfSquares(const StepInput& input);
  Result<double> AgreeOnNorm(const StepInput& input);
  Result<std::vector<StateSection>> StateSections(StateKind kind);
  SavedHead HeadOfState(StateKind kind) const;
  Status WriteState(StateKind kind, std::span<std::byte> blob);
  Status CompareState(uint64_t digest) const;
  Status AdoptCompressor(const SavedOptimizer& saved);
  Status TakeState(onebitComm_t comm, int source, bool is_source, bool is_behind);
  Status BroadcastPart(const StateList::Part& part, int source, onebitComm_t comm);
  Status RebindCompressor(onebitComm_t comm);
  uint64_t BytesSent() const;
  void WarnWithoutWarmup(double learning_rate);

  CommObserver observer_;  // of comm_
  Memory user_masks_;      // a copy of the table's, on a device; else empty
  // Results.
  struct Numbers {
    double sum;
    float value;
    kernels::cuda::CompressorWords outcome;
  };
  Numbers& numbers() const { return *reinterpret_cast<Numbers*>(numbers_.data()); }
  Memory numbers_;
  Memory mean_;  // a float, for averages
  // The last compressed call's, unless the compressor has changed since.
  std::optional<CallOutcome> outcome_;
  // The epoch before a step whose call had not ended when the step gave up: what it committed after
  // that is of a step that this rank has not made. Until a rebind, or the residuals are replaced.
  std::optional<uint64_t> epoch_of_open_call_;
  double first_learning_rate_ = 0;
  bool awaits_residual_ = false;  // took over a compressed step whose residuals are to follow
  bool is_torn_ = false;          // a rebind failed while it overwrote parameters, m and v
  uint64_t dense_steps_ = 0, compressed_steps_ = 0, local_steps_ = 0, skipped_steps_ = 0;
  // Since the beginning, or a checkpoint was loaded: steps, skips and syncs that changed what ranks
  // have in common, and of those the ones that left residuals. Who has fewer than another rank has
  // missed the last.
  uint64_t commits_ = 0, residual_commits_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t local_overflows_ = 0;
};

}  // namespace onebit::optim
