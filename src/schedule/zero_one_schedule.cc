// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/zero_one_schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "schedule/sync_schedule.h"

namespace onebit {
namespace {

// More steps than anybody can make, and far below where step numbers would wrap.
constexpr uint64_t kMaxSteps = INT64_MAX;

// The number of times that `rate` can be doubled without exceeding `peak`. Doubling is exact, so a
// rate that was halved k times gives k.
uint64_t Halvings(double peak, double rate) {
  uint64_t halvings = 0;
  for (double doubled = 2 * rate; doubled <= peak && halvings < 63; doubled *= 2) ++halvings;
  return halvings;
}

// True if DeepSpeed averages densely at step s >= 2 before the freeze. It proceeds in stages: the
// interval doubles from stage to stage, and a stage ends with its kappa-th refresh.
bool IsDenseOfDeepSpeed(uint64_t s, uint64_t kappa) {
  uint64_t stage_start = 2;
  for (uint64_t interval = 1; stage_start <= s; interval *= 2) {
    const uint64_t first = (stage_start + interval - 1) / interval * interval;
    if (s < first) return false;
    const uint64_t intervals = (s - first) / interval;
    if (intervals < kappa - 1) return s % interval == 0;
    const uint64_t last = first + (kappa - 1) * interval;
    if (s == last) return true;
    stage_start = last + 1;
  }
  return false;
}

// DeepSpeed freezes at the end of the first s after this one.
uint64_t LastBeforeFreeze(const ZeroOnePolicy& policy) {
  return std::max<uint64_t>(policy.var_freeze_step, 1);  // s = 1 is swallowed
}

}  // namespace

ZeroOneStep ZeroOneSchedule::Next(double learning_rate) const {
  switch (policy_.variant) {
    case Variant::kPaper:
      return NextOfPaper(learning_rate);
    case Variant::kDeepSpeed:
      return NextOfDeepSpeed(learning_rate);
  }
  return {};
}

void ZeroOneSchedule::Commit(double learning_rate) {
  const bool ends_interval = Next(learning_rate).ends_interval;
  ++state_.step;
  state_.peak_rate = std::max(state_.peak_rate, learning_rate);
  if (ends_interval) {
    EndInterval();
  } else {
    state_.rate_sum += learning_rate;
  }
}

void ZeroOneSchedule::EndInterval() {
  state_.interval_start = state_.step;
  state_.rate_sum = 0;
}

bool ZeroOneSchedule::has_weight(double learning_rate) const {
  const double sum = state_.rate_sum + learning_rate;
  return static_cast<float>(sum) >= std::numeric_limits<float>::min();
}

bool ZeroOneSchedule::has_last_refresh_behind() const { return state_.step >= last_live_step(); }

uint64_t ZeroOneSchedule::last_live_step() const {
  return policy_.variant == Variant::kPaper ? policy_.var_freeze_step
                                            : LastBeforeFreeze(policy_) + 1;
}

Status ZeroOneSchedule::SetState(const ZeroOneState& state) {
  if (state.step > kMaxSteps || state.interval_start > state.step) {
    return Error(Code::kCorrupt, "schedule of 0/1 Adam: an interval began at step {} of {}",
                 state.interval_start, state.step);
  }
  const bool has_local_steps = state.interval_start < state.step;
  const bool is_finite = std::isfinite(state.rate_sum) && std::isfinite(state.peak_rate);
  const bool is_sum_possible =
      state.rate_sum == 0 || (state.rate_sum > 0 && has_local_steps && state.peak_rate > 0);
  if (!is_finite || !is_sum_possible || state.peak_rate < 0) {
    return Error(Code::kCorrupt,
                 "schedule of 0/1 Adam: {} steps since the last sync have learning rates up to {} "
                 "and a sum of {}",
                 state.step - state.interval_start, state.peak_rate, state.rate_sum);
  }
  state_ = state;
  return OkStatus();
}

ZeroOneStep ZeroOneSchedule::NextOfPaper(double learning_rate) const {
  ZeroOneStep step;
  step.refreshes_variance = IsRefreshOfPaper();
  step.feeds_momentum = step.refreshes_variance && policy_.dense_step_feeds_momentum;
  if (step.feeds_momentum && state_.interval_start == state_.step) {
    step.kind = StepKind::kDense;
    step.ends_interval = true;
    return step;
  }
  step.syncs = IsSyncOfPaper(learning_rate) && has_weight(learning_rate);
  step.ends_interval = step.syncs;
  if (step.refreshes_variance) {
    step.kind = step.syncs ? StepKind::kDenseAndCompressed : StepKind::kDense;
  } else {
    step.kind = step.syncs ? StepKind::kCompressed : StepKind::kLocal;
  }
  return step;
}

// Gap number j is 2^floor(j / kappa), so gaps of 2^q begin at kappa (2^q - 1).
bool ZeroOneSchedule::IsRefreshOfPaper() const {
  const uint64_t t = state_.step;
  if (t >= policy_.var_freeze_step) return false;
  const uint64_t kappa = policy_.var_update_scaler;
  const uint64_t gap = std::bit_floor(t / kappa + 1);
  return (t - kappa * (gap - 1)) % gap == 0;
}

uint64_t ZeroOneSchedule::RefreshesBefore(uint64_t steps) const {
  const uint64_t end = std::min(steps, policy_.var_freeze_step);
  const uint64_t kappa = policy_.var_update_scaler;
  uint64_t count = 0;
  uint64_t begin = 0;  // of the refreshes that are `gap` apart
  for (uint64_t gap = 1; begin < end; gap *= 2) {
    const uint64_t gaps = (end - begin - 1) / gap + 1;
    if (gaps <= kappa) return count + gaps;
    count += kappa;
    begin += kappa * gap;
  }
  return count;
}

bool ZeroOneSchedule::IsSyncOfPaper(double learning_rate) const {
  SyncSchedule schedule = {.warmup_steps = policy_.local_step_start,
                           .base_interval = 1,
                           .double_every = policy_.local_step_scaler,
                           .max_interval = policy_.local_step_clipper};
  if (policy_.is_rate_tied) {
    const double peak = std::max(state_.peak_rate, learning_rate);
    schedule.base_interval = Doubled(1, Halvings(peak, learning_rate), policy_.local_step_clipper);
    schedule.double_every = 0;
  }
  const uint64_t start = state_.interval_start;
  const auto last_sync = start == 0 ? std::nullopt : std::optional<uint64_t>(start - 1);
  return schedule.IsSync(state_.step, last_sync);
}

ZeroOneStep ZeroOneSchedule::NextOfDeepSpeed(double learning_rate) const {
  const uint64_t steps_made = state_.step;
  const uint64_t s = steps_made + 1;
  if (s == 1) return {.kind = StepKind::kSwallowed, .ends_interval = true};

  const uint64_t last_before_freeze = LastBeforeFreeze(policy_);
  if (steps_made <= last_before_freeze) {
    const bool is_dense = IsDenseOfDeepSpeed(s, policy_.var_update_scaler);
    return {.kind = is_dense ? StepKind::kDense : StepKind::kCompressed,
            .refreshes_variance = is_dense,
            .feeds_momentum = is_dense,
            .compresses_gradient = !is_dense,
            .ends_interval = true};
  }
  const uint64_t frozen_steps = steps_made - last_before_freeze - 1;  // before this one
  const uint64_t interval =
      Doubled(1, frozen_steps / policy_.local_step_scaler, policy_.local_step_clipper);
  const bool syncs = s % interval == 0 && has_weight(learning_rate);
  return {.kind = syncs ? StepKind::kSync : StepKind::kLocal,
          .syncs = syncs,
          .ends_interval = syncs,
          .resets_residuals = frozen_steps == 0};
}

}  // namespace onebit
