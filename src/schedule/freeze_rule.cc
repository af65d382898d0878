// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/freeze_rule.h"

#include <algorithm>
#include <cmath>

namespace onebit {
namespace {

// True if a and b are within the rule's ratio of each other. A sum of zero has not settled.
bool HasSettled(double a, double b) {
  return std::min(a, b) > 0 && std::min(a, b) >= VarianceRule::kRatio * std::max(a, b);
}

}  // namespace

double VarianceRule::Window(double beta2) { return std::round(1.0 / (1.0 - beta2)); }

VarianceRule::VarianceRule(double beta2, uint64_t lr_warmup_steps)
    : beta2_(beta2),
      lr_warmup_steps_(lr_warmup_steps),
      history_(static_cast<size_t>(Window(beta2))) {}

bool AutomaticFreeze::Observe(double variance_sum) {
  const uint64_t window = history_.size();
  FreezeProgress& now = progress_;
  ++now.step;
  now.power *= beta2_;
  if (now.step > window) now.delayed_power *= beta2_;

  double& slot = history_[now.step % window];
  const double earlier_sum = slot;  // that of step t - D
  slot = variance_sum;
  if (now.step <= std::max(lr_warmup_steps_, window)) return false;

  return HasSettled(variance_sum, earlier_sum) &&
         HasSettled(variance_sum / (1.0 - now.power), earlier_sum / (1.0 - now.delayed_power));
}

bool SettledFreeze::Observe(double variance_sum) {
  const uint64_t window = history_.size();
  const uint64_t t = ++progress_.step;
  progress_.power *= beta2_;
  history_[t % window] = variance_sum / (1.0 - progress_.power);
  if (t <= std::max(lr_warmup_steps_, kLeastSteps)) return false;

  double least = history_[t % window];
  double most = least;
  for (uint64_t s = t - std::min(window - 1, t / 2); s < t; ++s) {
    least = std::min(least, history_[s % window]);
    most = std::max(most, history_[s % window]);
  }
  return HasSettled(least, most);
}

FreezeRule FreezeRule::After(uint64_t step) {
  FreezeRule rule;
  rule.fixed_step_ = step;
  return rule;
}

FreezeRule FreezeRule::Automatic(double beta2, uint64_t lr_warmup_steps) {
  FreezeRule rule;
  rule.observed_ = std::make_unique<AutomaticFreeze>(beta2, lr_warmup_steps);
  return rule;
}

FreezeRule FreezeRule::Settled(double beta2, uint64_t lr_warmup_steps) {
  FreezeRule rule;
  rule.observed_ = std::make_unique<SettledFreeze>(beta2, lr_warmup_steps);
  return rule;
}

bool FreezeRule::ShouldFreeze(double variance_sum) {
  if (observed_) return observed_->Observe(variance_sum);
  return ++progress_.step >= fixed_step_;
}

}  // namespace onebit
