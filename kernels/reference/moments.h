// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Formulas that all optimizers share, one element at a time.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/host_device.h"
#include "kernels/types.h"

namespace onebit::kernels::reference {

ONEBIT_HOST_DEVICE inline float NextMomentum(float beta1, float one_minus_beta1, float m, float g) {
  const float kept = beta1 * m;
  return kept + one_minus_beta1 * g;
}

ONEBIT_HOST_DEVICE inline float NextVariance(float beta2, float one_minus_beta2, float v, float g) {
  const float kept = beta2 * v;
  return kept + (one_minus_beta2 * g) * g;
}

// The floor of element i of an AdamUpdate or a ZeroOneUpdate.
template <class Update>
ONEBIT_HOST_DEVICE inline float FloorAt(const Update& update, size_t i) {
  return update.block_floors == nullptr ? update.floor : update.block_floors[i / kTensorSumBlock];
}

ONEBIT_HOST_DEVICE inline float Denominator(float v, float correction, float floor, float eps) {
  const float root = std::sqrt(v * correction);
  return (root < floor ? floor : root) + eps;
}

}  // namespace onebit::kernels::reference
