// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warns where the variance is frozen at a bad time, which is the usual mistake in a first setting.
#pragma once

#include <cstdint>

#include "optim/options.h"

namespace onebit::optim {

// Follows the updates of a variance up to its freeze: in the dense stage of two-stage optimizers
// all steps, in 0/1 Adam the refreshes. They count from 1. Each warning is logged once, and names
// what to set. `v` stands for |v|_1 as steps use it.
class FreezeWatch {
 public:
  // Begins a dense stage of `freeze_step` steps, in the encoding of freezeStep. Warns if v averages
  // over far more steps than that.
  void Begin(const PolicyOptions& policy, double beta2, int64_t freeze_step);
  // Begins the refreshes of 0/1 Adam, as it was published. Warns if v averages over far more.
  void BeginRefreshes(const PolicyOptions& policy, double beta2);

  // True if the watch needs v after this update.
  bool NeedsVariance(uint64_t update) const {
    return compared_from_ != 0 && (update == compared_from_ || update == compared_to_);
  }
  // Warns after the last update if v has changed much since the first of the two that it needs.
  void Observe(uint64_t update, double v);

  // Warns if a freeze that follows the variance has not come for a long time. `earlier` is v one
  // window before.
  void ObserveAutomatic(uint64_t step, double v, double earlier);

 private:
  // Compares v after the last of `updates` with v one window, or half of them, before.
  void CompareUpTo(uint64_t updates);

  const char* name_ = "";
  uint64_t window_ = 1;  // updates that v averages over
  uint64_t waits_until_ = 0;
  uint64_t compared_from_ = 0, compared_to_ = 0;  // 0: nothing is compared
  double first_v_ = 0;                            // after update compared_from_; 0: not seen
  bool has_refreshes_ = false;
};

// Warns if a learning-rate warm-up ends while v, which begins at 0, is still so small that steps
// are far larger than those of AdamW.
void WarnOfShortWarmup(const Options& options);

}  // namespace onebit::optim
