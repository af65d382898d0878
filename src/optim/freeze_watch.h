// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warns where the variance is frozen at a bad time, which is the usual mistake in a first setting.
#pragma once

#include <cstdint>

#include "optim/options.h"

namespace onebit::optim {

// Follows one dense stage, whose steps count from 1. Each warning is logged once, and names what to
// set. `v` stands for |v|_1 as updates use it.
class FreezeWatch {
 public:
  // Begins a dense stage of `freeze_step` steps, in the encoding of freezeStep. Warns if v averages
  // over far more steps than that.
  void Begin(const PolicyOptions& policy, double beta2, int64_t freeze_step);

  // True if the watch needs v after this step.
  bool NeedsVariance(uint64_t step) const {
    return compared_from_ != 0 && (step == compared_from_ || step == compared_to_);
  }
  // Warns after the last step if v has changed much since the first of the two that it needs.
  void Observe(uint64_t step, double v);

  // Warns if an automatic freeze has not come for a long time. `earlier` is v one window before.
  void ObserveAutomatic(uint64_t step, double v, double earlier);

 private:
  const char* name_ = "";
  uint64_t window_ = 1;  // steps that v averages over
  uint64_t waits_until_ = 0;
  uint64_t compared_from_ = 0, compared_to_ = 0;  // 0: nothing is compared
  double first_v_ = 0;                            // after step compared_from_; 0: not seen
};

}  // namespace onebit::optim
