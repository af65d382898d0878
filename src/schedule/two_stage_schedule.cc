// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/two_stage_schedule.h"

namespace onebit {

StepKind TwoStageSchedule::Next() const {
  if (frozen_at_ != 0) return StepKind::kCompressed;
  if (variant_ == Variant::kDeepSpeed && step_ == 0) return StepKind::kSwallowed;
  return StepKind::kDense;
}

void TwoStageSchedule::Commit(double variance_sum) {
  ++step_;
  if (frozen_at_ == 0 && rule_.ShouldFreeze(variance_sum)) frozen_at_ = step_;
}

}  // namespace onebit
