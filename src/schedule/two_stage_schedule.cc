// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_stage_schedule.h"

namespace onebit {

StepKind TwoStageSchedule::Next() const {
  if (is_frozen()) return StepKind::kCompressed;
  if (variant_ == Variant::kDeepSpeed && state_.step == 0) return StepKind::kSwallowed;
  return StepKind::kDense;
}

void TwoStageSchedule::Commit(double variance_sum) {
  ++state_.step;
  if (!is_frozen() && rule_.ShouldFreeze(variance_sum)) state_.frozen_at = state_.step;
}

void TwoStageSchedule::Rewarm(FreezeRule rule) {
  rule_ = std::move(rule);
  state_.frozen_at = 0;
}

}  // namespace onebit
