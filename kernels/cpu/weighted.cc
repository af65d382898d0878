// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plain loops, which compilers vectorise: the decoding around them takes most of the time.
#include "kernels/weighted.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"

namespace onebit::kernels::cpu {

using reference::InDefaultFpEnvironment;

float SumOf(const float* values, size_t count) {
  return InDefaultFpEnvironment([&] {
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += values[i];
    return sum;
  });
}

void AddWeighted(const float* values, float weight, size_t count, bool is_first, float* sum) {
  InDefaultFpEnvironment([&] {
    if (is_first) {
      for (size_t i = 0; i < count; ++i) sum[i] = weight * values[i];
    } else {
      for (size_t i = 0; i < count; ++i) sum[i] += weight * values[i];
    }
  });
}

void DivideAll(const float* values, float divisor, size_t count, float* output) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < count; ++i) output[i] = values[i] / divisor;
  });
}

bool RoundAll(const float* values, size_t count, DataType type, void* output) {
  return InDefaultFpEnvironment([&] {
    bool is_finite = true;
    for (size_t i = 0; i < count; ++i) {
      const float rounded = reference::RoundTo(type, values[i]);
      is_finite = is_finite && rounded - rounded == 0;
      reference::StoreElement(rounded, type, i, output);
    }
    return is_finite;
  });
}

}  // namespace onebit::kernels::cpu
