// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of 0/1 Adam (Lu et al. 2023): which of them refresh the variance, and which end an
// interval of local steps. Depends on replicated values only, so every rank decides alike without a
// message.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "schedule/step_kind.h"
#include "schedule/variant.h"

namespace onebit {

// The paper's policy counts steps t = 0, 1, ...:
//   T_v, the refreshes: k_0 = 0 and k_{j+1} = k_j + 2^floor(j / var_update_scaler), as far as they
//     are before var_freeze_step;
//   T_u, the syncs: every step before local_step_start, then one whenever the interval has passed
//     since the last. The interval doubles every local_step_scaler steps, or as the learning rate
//     falls, up to local_step_clipper.
//
// DeepSpeed counts s = 1, 2, ... and swallows the first. Up to the first s > var_freeze_step it
// averages the gradient: densely where s is a multiple of a refresh interval, which doubles after
// every var_update_scaler refreshes, otherwise at one bit. After that step s, the freeze, a step is
// a sync where s is a multiple of the sync interval.
struct ZeroOnePolicy {
  Variant variant = Variant::kPaper;
  uint64_t var_freeze_step = 1;         // >= 1
  uint64_t var_update_scaler = 16;      // kappa of the paper, >= 1
  uint64_t local_step_scaler = 32'678;  // steps, >= 1; the published number
  uint64_t local_step_clipper = 16;     // H of the paper, steps, >= 1

  // --- Paper's variant only.

  // >= var_freeze_step: a refresh must find the variance that the interval began with.
  uint64_t local_step_start = 1;
  // Makes the interval the largest power of two up to the peak of the learning rate over its
  // present value, so that the rates of an interval keep about the same sum.
  bool is_rate_tied = false;
  // Lets a refresh feed its dense average to the momentum, too. It then needs no one-bit average,
  // because ranks that agreed before it agree after it. DeepSpeed always does so.
  bool dense_step_feeds_momentum = false;

  friend bool operator==(const ZeroOnePolicy&, const ZeroOnePolicy&) = default;
};

// Effects of a step.
struct ZeroOneStep {
  StepKind kind = StepKind::kLocal;
  bool refreshes_variance = false;   // with the dense average of the gradient
  bool feeds_momentum = false;       // with that average instead of this rank's gradient
  bool compresses_gradient = false;  // the one-bit average is that of the gradient
  bool syncs = false;                // the one-bit average is that of u, the sum of local updates
  bool ends_interval = false;        // ranks agree on everything after it; u and its weight are 0
  bool resets_residuals = false;     // before the step: another quantity is compressed from now on

  friend bool operator==(const ZeroOneStep&, const ZeroOneStep&) = default;
};

// The whole state of a schedule; everything else follows from it and the policy.
struct ZeroOneState {
  uint64_t step = 0;            // steps made
  uint64_t interval_start = 0;  // value of `step` after the last step that ended an interval
  double rate_sum = 0;          // sum of the learning rates since then, the weight of u
  double peak_rate = 0;         // highest learning rate so far

  friend bool operator==(const ZeroOneState&, const ZeroOneState&) = default;
};

// Not thread-safe.
class ZeroOneSchedule {
 public:
  // The policy's members must be in range.
  explicit ZeroOneSchedule(const ZeroOnePolicy& policy) : policy_(policy) {}

  // Effects of the next step if it is made with this learning rate, finite and not negative. As
  // long as the rates of an interval sum to 0, u has no mean, and a sync that is due is postponed.
  ZeroOneStep Next(double learning_rate) const;

  // Records that the next step was made.
  void Commit(double learning_rate);

  // Ends the interval without a step, because the ranks agree, or have dropped what they did not
  // agree on.
  void EndInterval();

  // True if the rates of the interval, this one included, have a sum by which fp32 can divide.
  bool has_weight(double learning_rate) const;

  // True if the variance does not change any more.
  bool has_last_refresh_behind() const;
  // Number of steps after which it does not change any more.
  uint64_t last_live_step() const;
  // The paper's variant: refreshes among the first `steps` steps.
  uint64_t RefreshesBefore(uint64_t steps) const;

  const ZeroOnePolicy& policy() const { return policy_; }
  const ZeroOneState& state() const { return state_; }
  // For checkpoints, which read and replace it; SetState checks whether a state is possible.
  ZeroOneState& mutable_state() { return state_; }
  // Continues from a state of a schedule with an equal policy. Fails without a change if no
  // schedule can have such a state.
  Status SetState(const ZeroOneState& state);

 private:
  ZeroOneStep NextOfPaper(double learning_rate) const;
  ZeroOneStep NextOfDeepSpeed(double learning_rate) const;
  bool IsRefreshOfPaper() const;
  bool IsSyncOfPaper(double learning_rate) const;

  ZeroOnePolicy policy_;
  ZeroOneState state_;
};

}  // namespace onebit
