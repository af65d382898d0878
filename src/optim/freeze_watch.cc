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

// A stationary v changes by a small fraction of this within a tenth of its window. If it falls, it
// cannot fall by more than 10 %.
constexpr double kMostChange = 0.05;
// An automatic freeze usually comes after 3 or 4 windows.
constexpr uint64_t kManyWindows = 10;

double PercentOfChange(double from, double to) { return 100 * std::abs(to / from - 1); }

}  // namespace

void FreezeWatch::Begin(const PolicyOptions& policy, double beta2, int64_t freeze_step) {
  *this = FreezeWatch();
  name_ = NameOf(policy.algorithm);
  window_ = static_cast<uint64_t>(AutomaticFreeze::Window(beta2));
  if (freeze_step == ONEBIT_FREEZE_AUTOMATIC) {
    waits_until_ = policy.lr_warmup_steps + kManyWindows * window_;
  }
  if (freeze_step < 1) return;
  const auto steps = static_cast<uint64_t>(freeze_step);
  if (steps < window_ / 4) {
    LogIfPossible(LogLevel::kWarn,
                  "{}: the variance will be frozen after {} steps, but with beta2 = {} it averages "
                  "over {}: raise freezeStep, lower beta2, or leave freezeStep automatic",
                  name_, steps, beta2, window_);
  } else if (steps > 1) {
    compared_to_ = steps;
    compared_from_ = steps - std::clamp<uint64_t>(window_ / 10, 1, steps / 2);
  }
}

void FreezeWatch::Observe(uint64_t step, double v) {
  if (step == compared_from_) {
    first_v_ = v;
    return;
  }
  if (!(first_v_ > 0) || PercentOfChange(first_v_, v) <= 100 * kMostChange) return;
  LogIfPossible(LogLevel::kWarn,
                "{}: the variance is frozen after {} steps, but has changed by {:.0f} % over the "
                "last {}: raise freezeStep, or leave it automatic",
                name_, step, PercentOfChange(first_v_, v), step - compared_from_);
}

void FreezeWatch::ObserveAutomatic(uint64_t step, double v, double earlier) {
  if (step != waits_until_ || !(earlier > 0)) return;
  LogIfPossible(
      LogLevel::kWarn,
      "{}: the variance is not frozen after {} steps, because it has changed by {:.0f} % "
      "over the last {}: all steps so far were in full precision; set freezeStep, e.g. to "
      "a fifth of all steps",
      name_, step, PercentOfChange(earlier, v), window_);
}

}  // namespace onebit::optim
