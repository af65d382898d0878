// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/freeze_watch.h"

#include <algorithm>
#include <cmath>

#include "onebit/optim.h"
#include "optim/quiet_log.h"
#include "schedule/freeze_rule.h"

namespace onebit::optim {
namespace {

// v at the freeze, over v one window or half of the updates before. Training that ended as dense
// training does had 0.40 to 0.98, the least of them where the loss was nearly 0 at the freeze, and
// one with 0.45 stayed behind, so this ratio alone does not tell them apart. If v
// falls further afterwards, steps become too small, of which UpdateWatch warns. The bias of a v
// that begins at 0 makes it grow by less than 2 in this time.
constexpr double kLeastRatio = 0.35;
constexpr double kMostRatio = 2;
// Steps become too few for v below this share of its window.
constexpr uint64_t kLeastShare = 4;
// An automatic freeze usually comes after 3 or 4 windows.
constexpr uint64_t kManyWindows = 10;
// The greatest quotient of a step and that of AdamW after a warm-up. Runs with 2.0 were as good.
constexpr double kMostGrowth = 2.5;

double PercentOfChange(double from, double to) { return 100 * std::abs(to / from - 1); }

uint64_t WindowOf(double beta2) { return static_cast<uint64_t>(VarianceRule::Window(beta2)); }

// Returns the number of updates that v has had after `steps` steps.
uint64_t UpdatesAfter(const PolicyOptions& policy, uint64_t steps) {
  return policy.algorithm == onebitAlgorithmZeroOneAdam
             ? ZeroOneSchedule(policy.zero_one).RefreshesBefore(steps)
             : steps;
}

}  // namespace

void FreezeWatch::Begin(const PolicyOptions& policy, double beta2, int64_t freeze_step) {
  *this = FreezeWatch();
  name_ = NameOf(policy.algorithm);
  window_ = WindowOf(beta2);
  if (FollowsVariance(freeze_step)) {
    waits_until_ = policy.lr_warmup_steps + kManyWindows * window_;
  }
  if (freeze_step < 1) return;
  const auto steps = static_cast<uint64_t>(freeze_step);
  if (steps < window_ / kLeastShare) {
    LogIfPossible(LogLevel::kWarn,
                  "{}: the variance will be frozen after {} steps, but with beta2 = {} it averages "
                  "over {}: raise freezeStep, lower beta2, or leave freezeStep automatic",
                  name_, steps, beta2, window_);
  } else {
    CompareUpTo(steps);
  }
}

void FreezeWatch::BeginRefreshes(const PolicyOptions& policy, double beta2) {
  *this = FreezeWatch();
  if (policy.variant != Variant::kPaper) return;
  name_ = NameOf(policy.algorithm);
  window_ = WindowOf(beta2);
  has_refreshes_ = true;
  const uint64_t last = policy.zero_one.var_freeze_step;
  const uint64_t refreshes = UpdatesAfter(policy, last);
  if (refreshes < window_ / kLeastShare) {
    LogIfPossible(
        LogLevel::kWarn,
        "{}: the variance will be refreshed {} times up to step {}, but with beta2 = {} it "
        "averages over {}: steps will be {:.1f} times as large as Adam's: lower beta2, or "
        "raise varFreezeStep or varUpdateScaler",
        name_, refreshes, last, beta2, window_,
        1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(refreshes))));
  } else {
    CompareUpTo(refreshes);
  }
}

void FreezeWatch::CompareUpTo(uint64_t updates) {
  if (updates < 2 || updates == ONEBIT_FREEZE_NEVER) return;
  compared_to_ = updates;
  compared_from_ = updates - std::min(window_, updates / 2);
}

void FreezeWatch::Observe(uint64_t update, double v) {
  if (update == compared_from_) {
    first_v_ = v;
    return;
  }
  if (!(first_v_ > 0)) return;
  const double ratio = v / first_v_;
  if (ratio >= kLeastRatio && ratio <= kMostRatio) return;
  LogIfPossible(
      LogLevel::kWarn,
      "{}: frozen early: the variance changed by {:.0f} % over the last {} {} of {}: raise "
      "{}",
      name_, PercentOfChange(first_v_, v), update - compared_from_,
      has_refreshes_ ? "refreshes" : "steps", update,
      has_refreshes_ ? "varFreezeStep" : "freezeStep, or leave it automatic");
}

void FreezeWatch::ObserveAutomatic(uint64_t step, double v, double earlier) {
  if (step != waits_until_ || !(earlier > 0)) return;
  LogIfPossible(
      LogLevel::kWarn,
      "{}: the variance is not frozen after {} steps, because it has changed by {:.0f} % "
      "over the last {}: all steps so far were in full precision; set freezeStep, e.g. to a "
      "quarter of all steps",
      name_, step, PercentOfChange(earlier, v), window_);
}

// Without bias correction a step is (1 - beta1^t) / sqrt(1 - beta2^n) times that of AdamW, after n
// updates of v. A trust ratio cancels this factor. Where 0/1 Adam never makes enough refreshes, the
// watch has said so.
void WarnOfShortWarmup(const Options& options) {
  const PolicyOptions& policy = options.policy;
  const bool is_zero_one = policy.algorithm == onebitAlgorithmZeroOneAdam;
  const uint64_t enough = WindowOf(options.beta2) / kLeastShare;
  if (options.has_bias_correction || policy.lr_warmup_steps == 0 ||
      policy.variant != Variant::kPaper || policy.algorithm == onebitAlgorithmOneBitLamb ||
      (is_zero_one && UpdatesAfter(policy, policy.zero_one.var_freeze_step) < enough)) {
    return;
  }
  // The numerator is near 1 long before.
  constexpr uint64_t kSteps = 200;
  double most = 0;
  for (uint64_t t = policy.lr_warmup_steps; t < policy.lr_warmup_steps + kSteps; ++t) {
    const auto updates = static_cast<double>(UpdatesAfter(policy, t));
    const double growth = (1 - std::pow(options.beta1, static_cast<double>(t))) /
                          std::sqrt(1 - std::pow(options.beta2, updates));
    most = std::max(most, growth);
  }
  if (most <= kMostGrowth) return;
  LogIfPossible(LogLevel::kWarn,
                "{}: the learning-rate warm-up of {} steps is too short for beta2 = {}: steps "
                "after it are up "
                "to {:.1f} times as large as those of AdamW: {}, or lower beta2",
                NameOf(policy.algorithm), policy.lr_warmup_steps, options.beta2, most,
                is_zero_one
                    ? "warm up over more steps, raise varUpdateScaler"
                    : Format("warm up over {} steps or more, set biasCorrection = 1", enough));
}

}  // namespace onebit::optim
