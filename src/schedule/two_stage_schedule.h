// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The steps of 1-bit Adam and 1-bit LAMB: full precision up to the freeze of the variance, one bit
// per element after it. Depends on replicated values only, so every rank decides alike without a
// message.
#pragma once

#include <cstdint>
#include <utility>

#include "schedule/freeze_rule.h"
#include "schedule/step_kind.h"
#include "schedule/variant.h"

namespace onebit {

// Position of a schedule, apart from its rule. Saved in checkpoints.
struct TwoStageState {
  uint64_t step = 0;       // steps made
  uint64_t frozen_at = 0;  // the last dense step; 0 before the freeze
};

// Steps count from 1. With a freeze after step k the paper's variant makes k dense steps;
// DeepSpeed's swallows the first of them and makes k - 1. Not thread-safe.
class TwoStageSchedule {
 public:
  TwoStageSchedule(Variant variant, FreezeRule rule) : variant_(variant), rule_(std::move(rule)) {}

  bool is_frozen() const { return state_.frozen_at != 0; }
  bool needs_variance_sum() const { return !is_frozen() && rule_.needs_variance_sum(); }

  // Kind of the next step.
  StepKind Next() const;

  // Records that the next step was made. variance_sum is |v|_1 after it, used only if
  // needs_variance_sum().
  void Commit(double variance_sum);

  // Returns to dense steps until another rule holds.
  void Rewarm(FreezeRule rule);

  TwoStageState& state() { return state_; }
  const TwoStageState& state() const { return state_; }
  FreezeRule& rule() { return rule_; }

 private:
  Variant variant_;
  FreezeRule rule_;
  TwoStageState state_;
};

}  // namespace onebit
