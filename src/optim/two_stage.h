// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers of two stages: dense steps until the variance is frozen, then one-bit momentum with
// error feedback. 1-bit Adam (Tang et al. 2021, algorithm 1) and 1-bit LAMB (Li et al. 2021).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "optim/freeze_watch.h"
#include "optim/frozen_variance.h"
#include "optim/optimizer_base.h"
#include "optim/update_rule.h"
#include "schedule/two_stage_schedule.h"

namespace onebit::optim {

class TwoStage final : public Optimizer {
 public:
  static Result<std::unique_ptr<Optimizer>> Create(
      Setup setup, const onebitCompressorConfig_t* compressor_config);

  std::optional<TrustRatio> trust_ratio(size_t segment) const override {
    return rule_->trust_ratio(segment);
  }

 private:
  explicit TwoStage(Setup setup);
  Status Allocate(const onebitCompressorConfig_t* compressor_config);

  onebitStage_t NextStage(double learning_rate) const override;
  Status PrepareStep(const StepInput& input) override;
  bool has_live_variance() const override { return !is_frozen(); }
  bool averages_all_gradients() const override { return !is_frozen(); }
  Result<bool> Average(const StepInput& input, StepScale* scale) override;
  Status Commit(const StepInput& input, const StepScale& scale) override;
  Status BeginWarmup(int64_t steps) override;
  Status PrepareCompressor() override;
  void ForgetDerivedState() override { frozen_.Forget(); }
  void ListState(StateList* list) override;
  std::vector<Moment> Moments() const override;
  Status CheckState() const override;
  int64_t freeze_rule() const override { return freeze_rule_; }
  Status Adopt(const SavedOptimizer& saved) override;
  void AddStats(onebitOptimizerStats_t* stats) const override;

  bool is_frozen() const { return schedule_.is_frozen(); }
  Result<FreezeRule> MakeFreezeRule(int64_t steps) const;
  void BeginWatch(int64_t freeze_step);
  Result<double> WatchVariance();
  Result<bool> AverageMomentum(const StepInput& input, float scale);
  Status Update(const StepInput& input, float average_scale);
  float* MomentumBuffer(const StepInput& input) const;

  std::unique_ptr<UpdateRule> rule_;
  // fp32; used if compressed gradients cannot become momentum in place.
  Memory momentum_scratch_;

  TwoStageSchedule schedule_;
  FreezeWatch watch_;  // of rank 0, which logs
  FrozenVariance frozen_;
  int64_t freeze_rule_;  // the rule of schedule_, in the encoding of freezeStep
  // beta2_power_ belongs to the v of compressed segments, which does not age while it is frozen.
  double dense_beta2_power_ = 1;   // of dense segments
  double frozen_beta2_power_ = 0;  // beta2_power_ at the freeze
};

}  // namespace onebit::optim
