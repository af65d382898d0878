// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The base of all optimizers: runs steps, agrees between ranks, transfers state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "api/optimizer_calls.h"
#include "base/state_blob.h"
#include "base/status.h"
#include "kernels/optimizer.h"
#include "kernels/types.h"
#include "onebit/optim.h"
#include "optim/arithmetic.h"
#include "optim/gradient_list.h"
#include "optim/options.h"
#include "optim/saved_optimizer.h"
#include "optim/segment_table.h"
#include "optim/state_list.h"
#include "optim/step_agreement.h"
#include "optim/trust_ratio.h"
#include "optim/update_watch.h"

namespace onebit::optim {

// Checked arguments of one step.
struct StepInput : StepNumbers {
  Gradients gradients;  // without segments: zeros, in a step that sends nothing
};

// The factors of a step, and how they limit norms.
struct StepScale {
  float own = 1;      // multiplies gradients of this rank, before they are averaged
  float average = 1;  // multiplies averages of gradients
  // Greatest norm of averages, which then reduces `average`; 0: they have no limit of their own.
  double average_limit = 0;
  double grad_norm = -1;  // as in StepOutcome
};

// The outcome of a step.
struct StepOutcome {
  bool is_skipped = false;
  onebitStage_t stage = onebitStageDense;
  double grad_norm = -1;
  uint64_t bytes_sent = 0;
};

// Elements of an optimizer's state that callers know by name.
struct Moment {
  const char* name = "";
  std::span<float> elements;
  bool may_be_negative = true;
};

// A client of the public API and the kernels. A step has three parts, in this order, so that
// nothing ever has to be undone:
//   1. the dense part that can fail or be non-finite: the norm, then averages of gradients;
//   2. the compressed average, which commits residuals;
//   3. the update of m, v, x and counters, which cannot fail on the host. A device that breaks in
//      it leaves the optimizer torn.
// All ranks agree after 1 or 2 on whether all is finite, since they read it from equal bytes; if it
// is not, the step ends there.
//
// All functions that touch elements are called between Begin, or BeginAlone, and End of the
// arithmetic. One thread at a time.
class Optimizer {
 public:
  // Inputs of the constructor.
  struct Setup {
    onebitComm_t comm;
    size_t count;
    const Options& options;
    SegmentTable table;
    std::unique_ptr<Arithmetic> arithmetic;
  };

  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The last call before the destructor: waits, for a bounded time, until nothing uses memory of
  // this object. It is not in this class's destructor, because buffers of derived classes would be
  // freed by then.
  void Drain();

  // Makes a step with the gradients of the list, which the caller has completed and forgets
  // afterwards. Outputs are written only on success.
  Status Step(StepInput input, StepOutcome* outcome);
  GradientList& gradients() { return gradients_; }

  // Migrates to another communicator, whose ranks belong to the present one. Collective on the new
  // one. Returns the rank whose state all ranks have afterwards. See optimizer_rebind.cc.
  Result<int> Rebind(onebitComm_t comm);

  // Makes ranks agree on all state, if a step does not. Collective.
  Status Sync();

  // Returns to the stage where dense averages refresh the variance, as onebitOptimizerRewarm says.
  // Local. An error changes nothing.
  Status Rewarm(int64_t steps);

  // Replaces rates of a segment that exists, as onebitOptimizerSetRates says. An error changes
  // nothing.
  Status SetRates(size_t segment, double lr_scale, double weight_decay);

  // State of kind kOptimizerRank or kOptimizerGlobal. Exporting the latter is collective, makes
  // ranks agree first, and gives all the same bytes. `blob` has StateBytes; its content is
  // undefined after an error. See checkpoint.cc.
  Result<size_t> StateBytes(StateKind kind);
  Status Export(StateKind kind, std::span<std::byte> blob);
  // Local. An error changes nothing. See checkpoint.cc.
  Status Import(std::span<const std::byte> blob);

  // Fills everything but `size`.
  void GetStats(onebitOptimizerStats_t* stats) const;

  // Empty for algorithms without trust ratios.
  virtual std::optional<TrustRatio> trust_ratio(size_t /*segment*/) const { return std::nullopt; }

  // The moment of a segment, or of ONEBIT_ALL_SEGMENTS. `segment` must exist. See named_moments.cc.
  Result<Moment> FindMoment(std::string_view name, size_t segment);
  // Copies the elements, from and to the host or the parameters' location. Writing fails without a
  // change if a value is not possible.
  Status ReadMoment(const Moment& moment, float* values);
  Status WriteMoment(const Moment& moment, const float* values);

  Arithmetic& arithmetic() const { return *arithmetic_; }
  const SegmentTable& table() const { return table_; }
  size_t count() const { return count_; }
  uint64_t step() const { return step_; }

 protected:
  explicit Optimizer(Setup setup);

  // Allocate the moments and, unless nothing will ever be compressed, the compressor of
  // `element_count` elements. CreateCompressor must be the last allocation: it takes a number of
  // the communicator, also on the other ranks.
  Status AllocateMoments();
  Status CreateCompressor(size_t element_count, const onebitCompressorConfig_t* config);
  onebitCompressorConfig_t CompressorHere(const onebitCompressorConfig_t* config) const;
  // Requires a live communicator: CheckComm later asks if it still exists.
  void ObserveComm() {
    observer_ = CommObserver(comm_);
    tensor_id_ = ReserveTensorId(comm_);
  }

  // ---- implemented by an algorithm

  // Stage of the next step at this learning rate, which determines the data it sends.
  virtual onebitStage_t NextStage(double learning_rate) const = 0;
  // Allocates everything a step needs, before anything is sent.
  virtual Status PrepareStep(const StepInput& input) = 0;
  // True if the next step may update the variance of compressed segments.
  virtual bool has_live_variance() const = 0;
  // True if the prepared step uses gradients only after it has averaged all of them.
  virtual bool averages_all_gradients() const = 0;
  // Computes all averages of a step that sends something. False if they are not finite.
  virtual Result<bool> Average(const StepInput& input, StepScale* scale) = 0;
  // Updates m, v, x and everything else but the counters below.
  virtual Status Commit(const StepInput& input, const StepScale& scale) = 0;
  // Replaces Commit if the averages are not finite. Returns true if anything changed. It may run
  // collectives; an error changes nothing.
  virtual Result<bool> Skip(const StepInput& /*input*/) { return false; }
  // Implements Sync, when ranks may differ. Returns the stage of a step that sends as much, or
  // onebitStageLocal if there was nothing to do.
  virtual Result<onebitStage_t> AgreeOnState() { return onebitStageLocal; }
  // Implements Rewarm.
  virtual Status BeginWarmup(int64_t steps) = 0;
  // True if the parameters are the same on every rank now.
  virtual bool ranks_share_parameters() const { return true; }
  // PrepareCompressor recomputes what follows from replaced state: masks and floors.
  // ForgetDerivedState invalidates it.
  virtual Status PrepareCompressor() { return OkStatus(); }
  virtual void ForgetDerivedState() {}
  virtual void ListState(StateList* list);
  // Names all moments, with the elements of all segments.
  virtual std::vector<Moment> Moments() const;
  // Checks that replaced values are possible for this optimizer.
  virtual Status CheckState() const;
  // The argument of the last onebitOptimizerRewarm, or else the configuration's value, for
  // algorithms that use it.
  virtual int64_t freeze_rule() const { return 0; }
  // Loads a state that agrees in everything that must be equal. An error changes nothing.
  virtual Status Adopt(const SavedOptimizer& saved);
  virtual void AddStats(onebitOptimizerStats_t* stats) const = 0;

  // ---- services for algorithms

  Status CheckComm() const;
  // Marks the state as neither old nor new, after a device error in between.
  Status Torn(Status status);
  // Averages gradients over ranks, in place, and limits their norm. False if squares of scaled
  // averages leave fp32.
  Result<bool> AverageGradients(const Gradients& gradients, Which which, StepScale* scale);
  // The same for other values.
  Result<bool> AverageFloats(float* values, size_t count);
  // Averages with compression. False if any rank had a value that is not finite.
  Result<bool> AverageCompressed(float* values, size_t count);
  Status ResetCompressor();
  // The sum of v over the chosen segments.
  Result<double> VarianceSum(Which which);
  // The caller's mask of one segment, in memory that kernels can read.
  const uint8_t* user_mask(const Segment& segment) const {
    return user_masks_.size() == 0
               ? table_.user_mask(segment)
               : reinterpret_cast<const uint8_t*>(user_masks_.data()) + segment.mask_offset;
  }
  // Fills in x, m, v and the segment's configuration.
  kernels::AdamUpdate UpdateOf(const Segment& segment, double learning_rate) const;
  double Correction(double beta_power) const;
  // Writes the low-precision copy after parameters were replaced outside an update.
  Status WriteParameterCopy() const;
  const float* m() const { return reinterpret_cast<const float*>(m_.data()); }
  const float* v() const { return reinterpret_cast<const float*>(v_.data()); }

  const Options options_;
  SegmentTable table_;
  const std::unique_ptr<Arithmetic> arithmetic_;
  onebitComm_t comm_;
  const size_t count_;
  int rank_ = 0;
  int ranks_ = 0;

  Memory m_, v_;
  onebitCompressor_t compressor_ = nullptr;  // null when nothing will ever be compressed
  uint64_t step_ = 0;                        // t, counts steps that have happened
  double beta1_power_ = 1;                   // beta1^t
  double beta2_power_ = 1;
  UpdateWatch updates_;  // of rank 0, which logs

 private:
  Status StepAlone(StepInput input, StepOutcome* outcome);
  Status AgreeOnStep(const StepInput& input, onebitStage_t stage);
  Result<std::vector<uint64_t>> ParameterDigests();
  Result<StepScale> ScaleOf(const StepInput& input, onebitStage_t stage);
  Status CommitOrTear(const StepInput& input, const StepScale& scale);
  Status InStep(const Status& status) const;
  void CountStep(onebitStage_t stage);
  void CountCommit(onebitStage_t stage);
  Status CheckWhole() const;
  Status EnqueueAverages(const Gradients& gradients, Which which);
  Result<double> SumOfSquares(const Gradients& gradients, Which which, onebitComm_t comm);
  template <Kernel kKernel, typename ParamsOf>
  Result<double> SumOverSegments(Which which, onebitComm_t comm, ParamsOf params_of);
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
  Result<bool> AverageOnStream(float* values, size_t count);
  uint64_t BytesSent() const;
  void WarnWithoutWarmup(double learning_rate);

  CommObserver observer_;   // observes comm_
  uint32_t tensor_id_ = 0;  // reserved there
  Memory user_masks_;       // on a device: a copy of the table's masks; else empty
  // Results of kernels.
  struct Numbers {
    double sum;
    float value;
    kernels::cuda::CompressorWords totals;
  };
  Numbers& numbers() const { return *reinterpret_cast<Numbers*>(numbers_.data()); }
  Memory numbers_;
  Memory segment_sums_;  // results: a double per segment
  Memory mean_;          // a float, for averages
  GradientList gradients_;
  // On a device: totals after the last compressed call, unless the compressor has changed since.
  std::optional<DeviceTotals> totals_;
  // The epoch before a step that gave up while its call was pending: anything committed later
  // belongs to a step that this rank has not made. Valid until a rebind, or until the residuals are
  // replaced.
  std::optional<uint64_t> epoch_of_open_call_;
  double first_learning_rate_ = 0;
  // Stages, one bit each, before whose first step the ranks have compared their values, and how
  // many steps that send something follow before they compare again.
  uint32_t agreed_stages_ = 0;
  uint32_t steps_until_comparison_ = 0;
  bool awaits_residual_ = false;  // received a compressed step whose residuals must follow
  bool is_torn_ = false;          // a rebind failed while it overwrote parameters, m and v
  uint64_t dense_steps_ = 0, compressed_steps_ = 0, local_steps_ = 0, skipped_steps_ = 0;
  // Counters since creation or the last loaded checkpoint: steps, skips and syncs that changed the
  // common state of the ranks, and those of them that left residuals. A rank with fewer than
  // another has missed the last one.
  uint64_t commits_ = 0, residual_commits_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t local_overflows_ = 0;
};

}  // namespace onebit::optim
