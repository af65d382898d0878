// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The update of 1-bit Adam (Tang et al. 2021, algorithm 1): Adam with a variance that may be
// frozen.
#pragma once

#include "optim/update_rule.h"

namespace onebit::optim {

class AdamRule final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void UpdateDense(size_t /*segment*/, const kernels::AdamUpdate& update) override {
    arithmetic_.Run<Kernel::kAdamDense>(update);
  }
  void UpdateFrozen(size_t /*segment*/, const kernels::AdamUpdate& update,
                    double /*fresh_correction*/) override {
    arithmetic_.Run<Kernel::kAdamFrozen>(update);
  }
};

}  // namespace onebit::optim
