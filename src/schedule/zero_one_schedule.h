// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of 0/1 Adam (Lu et al. 2023): which refresh the variance, which end an interval of
// local steps. Pure: decides from replicated values only, so every rank decides alike without a
// message.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "schedule/step_kind.h"
#include "schedule/variant.h"

namespace onebit {

// The paper's policy counts steps t = 0, 1, ...:
//   T_v, the refreshes: k_0 = 0 and k_{j+1} = k_j + 2^floor(j / var_update_scaler), of these all
//     that are before var_freeze_step;
//   T_u, the syncs: every step before local_step_start, then one whenever so many steps were made
//     since the last as the interval says. It doubles every local_step_scaler steps, or as the
//     learning rate falls, up to local_step_clipper.
//
// DeepSpeed counts s = 1, 2, ... and swallows the first. Up to the first s > var_freeze_step it
// averages the gradient: densely where s is a multiple of a refresh interval, which doubles after
// every var_update_scaler refreshes, and else at one bit. After it, a step is a sync where s is a
// multiple of the sync interval.
struct ZeroOnePolicy {
  Variant variant = Variant::kPaper;
  uint64_t var_freeze_step = 1;         // >= 1
  uint64_t var_update_scaler = 16;      // kappa of the paper, >= 1
  uint64_t local_step_scaler = 32'678;  // steps, >= 1; the published number
  uint64_t local_step_clipper = 16;     // H of the paper, steps, >= 1

  // Of the paper's variant only.
  // >= var_freeze_step: a refresh must find the variance that the interval began with.
  uint64_t local_step_start = 1;
  // The interval is the largest power of two that is at most the peak of the learning rate over its
  // present value, so that the rates of an interval keep about the same sum.
  bool is_rate_tied = false;
  // A refresh gives its dense average to the momentum, too. It then needs no one-bit average, as
  // ranks that agreed before it agree after it. In DeepSpeed this is always so.
  bool dense_step_feeds_momentum = false;

  friend bool operator==(const ZeroOnePolicy&, const ZeroOnePolicy&) = default;
};

// What a step does.
struct ZeroOneStep {
  StepKind kind = StepKind::kLocal;
  bool refreshes_variance = false;   // by the dense average of the gradient
  bool feeds_momentum = false;       // by the same average, instead of the gradient of this rank
  bool compresses_gradient = false;  // the one-bit average is that of the gradient
  bool syncs = false;                // the one-bit average is that of u, the sum of local updates
  bool ends_interval = false;     // behind it ranks agree on everything, and u = 0 and its weight 0
  bool resets_residuals = false;  // before it: they belonged to averages of another quantity

  friend bool operator==(const ZeroOneStep&, const ZeroOneStep&) = default;
};

// All that a schedule remembers; everything else follows from it and the policy.
struct ZeroOneState {
  uint64_t step = 0;            // steps made
  uint64_t interval_start = 0;  // value of `step` behind the last step that ended an interval
  double rate_sum = 0;          // of the learning rates since then, the weight of u
  double peak_rate = 0;         // highest learning rate so far

  friend bool operator==(const ZeroOneState&, const ZeroOneState&) = default;
};

// One thread at a time.
class ZeroOneSchedule {
 public:
  // The policy's members must be in range.
  explicit ZeroOneSchedule(const ZeroOnePolicy& policy) : policy_(policy) {}

  // What the next step does if it is made with this learning rate, finite and not negative. While
  // the rates of an interval sum to 0 its u has no mean, and a sync that is due waits.
  ZeroOneStep Next(double learning_rate) const;

  // The next step was made.
  void Commit(double learning_rate);

  // Besides a step: ranks agree on everything, or have forgotten what they did not agree on.
  void EndInterval();

  // Whether the rates of the interval, with one more of this size, have a sum that a mean can be
  // divided by, in fp32.
  bool has_weight(double learning_rate) const;

  // Whether the variance stays as it is from here on.
  bool has_last_refresh_behind() const;
  // How many steps are made before it does.
  uint64_t last_live_step() const;

  const ZeroOnePolicy& policy() const { return policy_; }
  const ZeroOneState& state() const { return state_; }
  // For checkpoints, which read and replace it. SetState tells whether a state can be one.
  ZeroOneState& mutable_state() { return state_; }
  // Goes on where a schedule of an equal policy was. An error if none can have been there; then
  // nothing has changed.
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
