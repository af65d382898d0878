// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Scales without the guard of the entry points, for use inside kernels.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/host_device.h"
#include "kernels/reference/elements.h"
#include "kernels/types.h"

namespace onebit::kernels::reference {

ONEBIT_HOST_DEVICE inline float ScaleOfSum(double sum, size_t element_count, ScaleRule rule) {
  if (element_count == 0) return 0;
  const double mean = sum / static_cast<double>(element_count);
  return static_cast<float>(rule == ScaleRule::kL2 ? std::sqrt(mean) : mean);
}

ONEBIT_HOST_DEVICE inline float RoundedScale(float a, size_t ranks, bool is_sum,
                                             DataType output_type) {
  return RoundTo(output_type, is_sum ? static_cast<float>(ranks) * a : a);
}

// The magnitude that the server subtracts from y: t in units of the mean.
ONEBIT_HOST_DEVICE inline float ScaleOfMean(float t, size_t ranks, bool is_sum) {
  return is_sum ? t / static_cast<float>(ranks) : t;
}

}  // namespace onebit::kernels::reference
