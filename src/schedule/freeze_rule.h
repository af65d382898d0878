// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decides when to freeze the variance of an Adam-like optimizer: after a given step, or when it has
// settled. The decision depends on replicated values only, so every rank decides alike without a
// message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace onebit {

// Progress of a rule, apart from its history. Saved in checkpoints.
struct FreezeProgress {
  uint64_t step = 0;         // t of the last step
  double power = 1;          // beta2^t
  double delayed_power = 1;  // beta2^(t-D), from t = D on
};

// A rule that follows |v_t|_1 over a window of D = round(1 / (1 - beta2)) steps.
class VarianceRule {
 public:
  // Values within this ratio of each other have settled.
  static constexpr double kRatio = 0.96;
  // Longest history kept; beta2 up to 1 - 1e-6.
  static constexpr size_t kMaxWindow = 1'000'000;

  // D of a beta2 in [0, 1).
  static double Window(double beta2);

  virtual ~VarianceRule() = default;

  // Takes |v_t|_1 of the next step t = 1, 2, ... and returns true if the rule holds at t.
  virtual bool Observe(double variance_sum) = 0;

  FreezeProgress& progress() { return progress_; }
  std::span<double> history() { return history_; }

 protected:
  // Window(beta2) must not exceed kMaxWindow. Allocates the history.
  VarianceRule(double beta2, uint64_t lr_warmup_steps);

  const double beta2_;
  const uint64_t lr_warmup_steps_;
  FreezeProgress progress_;
  std::vector<double> history_;  // of step t at index t mod D
};

// The automatic rule of 1-bit Adam (Tang et al. 2021, section 6.1), on both the raw and the
// bias-corrected variance. With q = |v_t| / |v_{t-D}| in the 1-norm, it fires at the first
// t > max(lr_warmup_steps, D) at which
//   min(q, 1/q) >= 0.96  and  min(h, 1/h) >= 0.96,  h = q (1 - beta2^(t-D)) / (1 - beta2^t).
// The raw ratio alone fires on transients, where v falls as fast as the start-up bias lets it grow.
class AutomaticFreeze final : public VarianceRule {
 public:
  AutomaticFreeze(double beta2, uint64_t lr_warmup_steps) : VarianceRule(beta2, lr_warmup_steps) {}
  bool Observe(double variance_sum) override;
};

// Fires at the first t > max(lr_warmup_steps, kLeastSteps) at which h_s = |v_s| / (1 - beta2^s) has
// stayed within kRatio for all s from t/2 on, or over the last D steps if these are fewer. Before D
// steps h is the plain mean of squared gradients since the start, so that what is left of an early
// transient shows up as a drift between t/2 and t. The history has h.
class SettledFreeze final : public VarianceRule {
 public:
  // With fewer steps the variances of single elements are noise, whatever their sum does.
  static constexpr uint64_t kLeastSteps = 32;

  SettledFreeze(double beta2, uint64_t lr_warmup_steps) : VarianceRule(beta2, lr_warmup_steps) {}
  bool Observe(double variance_sum) override;
};

// Decides after which step the variance is frozen.
class FreezeRule {
 public:
  // Freezes after a fixed step, never if that is not reached.
  static FreezeRule After(uint64_t step);
  static FreezeRule Automatic(double beta2, uint64_t lr_warmup_steps);
  static FreezeRule Settled(double beta2, uint64_t lr_warmup_steps);

  // True if ShouldFreeze uses the sum. Otherwise the caller need not compute it.
  bool needs_variance_sum() const { return observed_ != nullptr; }

  // Call once for each step t = 1, 2, ... until it returns true: v_t is then frozen, T_w = t.
  bool ShouldFreeze(double variance_sum);

  // The whole state, for checkpoints to read and replace. Its length depends on beta2 only.
  FreezeProgress& progress() { return observed_ ? observed_->progress() : progress_; }
  std::span<double> history() { return observed_ ? observed_->history() : std::span<double>(); }

 private:
  FreezeRule() = default;

  uint64_t fixed_step_ = 0;
  FreezeProgress progress_;                 // with a fixed step
  std::unique_ptr<VarianceRule> observed_;  // null: a fixed step
};

}  // namespace onebit
