// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onebit::optim {

// The state that LAMB keeps for a layer.
struct TrustRatio {
  double coefficient = 0;     // c of the last step; 0 before the first
  double average = 0;         // moving average of c over the dense steps
  double factor = 1;          // r of the last step
  double momentum_scale = 1;  // k
};

}  // namespace onebit::optim
