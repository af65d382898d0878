// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The base of all optimizers: runs steps, on which all ranks agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/optimizer.h"
#include "onebit/optim.h"
#include "optim/gradient_list.h"
#include "optim/optimizer_state.h"
#include "optim/rank_averages.h"
#include "optim/step_agreement.h"
#include "optim/trust_ratio.h"
#include "optim/update_watch.h"

namespace onebit::optim {

// Checked arguments of one step.
struct StepInput : StepNumbers {
  Gradients gradients;  // without segments: zeros, in a step that sends nothing
};

// The outcome of a step.
struct StepOutcome {
  bool is_skipped = false;
  onebitStage_t stage = onebitStageDense;
  double grad_norm = -1;
  uint64_t bytes_sent = 0;
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
// Functions are called as OptimizerState says.
class Optimizer : public OptimizerState {
 public:
  // The last call before the destructor: waits, for a bounded time, until nothing uses memory of
  // this object. It is not in this class's destructor, because buffers of derived classes would be
  // freed by then.
  void Drain();

  // Makes a step with the gradients of the list, which the caller has completed and forgets
  // afterwards. Outputs are written only on success.
  Status Step(StepInput input, StepOutcome* outcome);
  GradientList& gradients() { return gradients_; }

  Status Sync() final;

  // Returns to the stage where dense averages refresh the variance, as onebitOptimizerRewarm says.
  // Local. An error changes nothing.
  Status Rewarm(int64_t steps);

  // Replaces rates of a segment that exists, as onebitOptimizerSetRates says. An error changes
  // nothing.
  Status SetRates(size_t segment, double lr_scale, double weight_decay);

  // Fills everything but `size`.
  void GetStats(onebitOptimizerStats_t* stats) const;

  // Empty for algorithms without trust ratios.
  virtual std::optional<TrustRatio> trust_ratio(size_t /*segment*/) const { return std::nullopt; }

 protected:
  explicit Optimizer(Setup setup) : OptimizerState(std::move(setup)), gradients_(table_) {}

  // Creates the compressor of all compressed segments, as the last allocation.
  Status CreateCompressor(const onebitCompressorConfig_t* config);

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
  virtual void AddStats(onebitOptimizerStats_t* stats) const = 0;

  // ---- services for algorithms

  // Fills in x, m, v and the segment's configuration.
  kernels::AdamUpdate UpdateOf(const Segment& segment, double learning_rate) const;
  double Correction(double beta_power) const;

  UpdateWatch updates_;  // of rank 0, which logs

 private:
  void BeginAnew() final;
  Status StepAlone(StepInput input, StepOutcome* outcome);
  Status AgreeOnStep(const StepInput& input, onebitStage_t stage);
  Result<std::vector<uint64_t>> ParameterDigests();
  Result<StepScale> ScaleOf(const StepInput& input, onebitStage_t stage);
  Status CommitOrTear(const StepInput& input, const StepScale& scale);
  Status InStep(const Status& status) const;
  void CountStep(onebitStage_t stage);
  void CountCommit(onebitStage_t stage);
  void WarnWithoutWarmup(double learning_rate);

  GradientList gradients_;
  // Stages, one bit each, before whose first step the ranks have compared their values, and how
  // many steps that send something follow before they compare again.
  uint32_t agreed_stages_ = 0;
  uint32_t steps_until_comparison_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t local_overflows_ = 0;
};

}  // namespace onebit::optim
