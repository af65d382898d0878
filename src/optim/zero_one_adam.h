// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 0/1 Adam (Lu et al. 2023, algorithm 1): ranks step on their own, and average the sums of their
// steps every so often, at one bit per element with error feedback. Dense averages refresh the
// variance at ever rarer steps, and finally stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/zero_one.h"
#include "optim/freeze_watch.h"
#include "optim/frozen_variance.h"
#include "optim/gradient_elements.h"
#include "optim/optimizer_base.h"
#include "schedule/zero_one_schedule.h"

namespace onebit::optim {

// Between two syncs x, m and u belong to this rank alone; x_sync and v are always the same on all
// ranks. A sync computes x from x_sync, rather than subtracting what the rank had added to it, so
// that ranks agree bit for bit after it.
//
// Dense segments are averaged exactly at every sync, both u and gradient, and refresh their
// variance then. It does not see the gradients of local steps, so it has a floor, too.
class ZeroOneAdam final : public Optimizer {
 public:
  static Result<std::unique_ptr<Optimizer>> Create(
      Setup setup, const onebitCompressorConfig_t* compressor_config);

 private:
  explicit ZeroOneAdam(Setup setup);
  Status Allocate(const onebitCompressorConfig_t* compressor_config);

  onebitStage_t NextStage(double learning_rate) const override;
  Status PrepareStep(const StepInput& input) override;
  bool has_live_variance() const override { return !schedule_.has_last_refresh_behind(); }
  bool averages_all_gradients() const override { return plan_.feeds_momentum; }
  Result<bool> Average(const StepInput& input, StepScale* scale) override;
  Status Commit(const StepInput& input, const StepScale& scale) override;
  Result<bool> Skip(const StepInput& input) override;
  Result<onebitStage_t> AgreeOnState() override;
  Status BeginWarmup(int64_t steps) override;
  bool ranks_share_parameters() const override { return !is_interval_open(); }
  Status PrepareCompressor() override;
  void ForgetDerivedState() override { have_masks_of_v_ = have_dense_floors_of_v_ = false; }
  void ListState(StateList* list) override;
  std::vector<Moment> Moments() const override;
  Status CheckState() const override;
  void AddStats(onebitOptimizerStats_t* stats) const override;

  // The parts of Average. False if a value is not finite.
  Result<bool> RefreshVariance(const StepInput& input, StepScale* scale);
  Result<bool> AverageGradient(const StepInput& input, StepScale* scale);
  Result<bool> AverageSums(const StepInput& input, StepScale* scale);
  Result<bool> AverageDenseSegments(const StepInput& input, StepScale* scale);

  Status AllocateFloats(size_t count, const char* purpose, Memory* memory) const;
  Status UpdateMasks(const float* v);
  Status UpdateDenseFloors(const float* v);
  void BeginWatch();
  Status WatchRefresh();
  kernels::ZeroOneUpdate StepOf(size_t segment, const StepInput& input, float scale) const;
  // The factor of the gradients that make momentum, which a refresh may have averaged before.
  float MomentumScale(const StepScale& scale) const {
    return plan_.feeds_momentum ? scale.average : scale.own;
  }
  void RefreshDenseSegment(size_t segment, const StepInput& input, float average_scale);
  void WriteVariance(size_t segment, const Gradient& average, float scale, float* v);
  void TakeMeans(const StepInput& input, float average_scale);
  void MoveAlone(const StepInput& input, const StepScale& scale);
  void KeepAsSynced();
  void CopyParameters();
  Status RevertToLastSync(float* scratch);
  Gradients CopyOf(const Gradients& gradients);
  // Contributions of compressed segments, concatenated; they overwrite the gradients if they fit.
  float* Contributions(const StepInput& input) const;
  float* DenseSums() const { return Floats(dense_sums_); }
  bool is_interval_open() const;

  ZeroOneSchedule schedule_;
  ZeroOneStep plan_;         // of the current step
  double last_rate_ = 1;     // learning rate of the last step; used only for stats
  FreezeWatch watch_;        // of rank 0, which logs
  FrozenVariance variance_;  // masks and floors, from v_ or, during a step, from next_v_
  bool have_masks_of_v_ = false, have_dense_floors_of_v_ = false;

  Memory u_, x_sync_;
  // v after the current step. Freed when the variance is frozen, on a device only at the end.
  Memory next_v_;
  // fp32 contributions of compressed segments that cannot overwrite the gradients.
  Memory contributions_;
  // A copy of half-precision gradients while their average is formed. Same lifetime as next_v_.
  Memory gradient_copy_;
  std::vector<Gradient> copies_;  // in next_v_ or gradient_copy_, one per segment
  Memory dense_sums_;             // of dense segments, concatenated
};

}  // namespace onebit::optim
