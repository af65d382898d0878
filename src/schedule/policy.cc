// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policy.h"

namespace onebit {
namespace {

std::variant<TwoStageSchedule, ZeroOneSchedule> ScheduleOf(const PolicyOptions& options) {
  if (options.algorithm == onebitAlgorithmZeroOneAdam) return ZeroOneSchedule(options.zero_one);
  return TwoStageSchedule(options.variant, FreezeRuleOf(options));
}

struct NumberedStep {
  uint64_t number;
  ZeroOneStep step;
};

// A dense step is one of Adam, and ranks agree after every step.
NumberedStep NextOf(const TwoStageSchedule& schedule, double) {
  const StepKind kind = schedule.Next();
  return {.number = schedule.state().step + 1,
          .step = {.kind = kind,
                   .refreshes_variance = SendsDense(kind),
                   .feeds_momentum = SendsDense(kind),
                   .ends_interval = true}};
}

NumberedStep NextOf(const ZeroOneSchedule& schedule, double learning_rate) {
  const uint64_t first = schedule.policy().variant == Variant::kPaper ? 0 : 1;
  return {.number = schedule.state().step + first, .step = schedule.Next(learning_rate)};
}

uint32_t FlagsOf(const ZeroOneStep& step) {
  uint32_t flags = 0;
  if (step.refreshes_variance) flags |= onebitStepRefreshesVariance;
  if (step.feeds_momentum) flags |= onebitStepFeedsMomentum;
  if (step.compresses_gradient) flags |= onebitStepCompressesGradient;
  if (step.syncs) flags |= onebitStepSyncs;
  if (step.ends_interval) flags |= onebitStepEndsInterval;
  if (step.resets_residuals) flags |= onebitStepResetsResiduals;
  return flags;
}

}  // namespace

Policy::Policy(const PolicyOptions& options) : schedule_(ScheduleOf(options)) {}

void Policy::Next(double learning_rate, onebitStepPlan_t* plan) const {
  const auto [number, step] =
      std::visit([=](const auto& schedule) { return NextOf(schedule, learning_rate); }, schedule_);
  plan->step = number;
  plan->flags = FlagsOf(step);
  plan->dense = SendsDense(step.kind) ? 1 : 0;
  plan->compressed = SendsCompressed(step.kind) ? 1 : 0;
  plan->kind = LetterOf(step.kind);
}

bool Policy::needs_variance_sum() const {
  const auto* two_stage = std::get_if<TwoStageSchedule>(&schedule_);
  return two_stage != nullptr && two_stage->needs_variance_sum();
}

void Policy::Commit(double learning_rate, double variance_sum) {
  if (auto* two_stage = std::get_if<TwoStageSchedule>(&schedule_)) {
    two_stage->Commit(variance_sum);
  } else {
    std::get<ZeroOneSchedule>(schedule_).Commit(learning_rate);
  }
}

void Policy::EndInterval() {
  if (auto* zero_one = std::get_if<ZeroOneSchedule>(&schedule_)) zero_one->EndInterval();
}

}  // namespace onebit
