// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums of values that count with a weight each, in fp32. No product is fused with a sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit::kernels::cpu {

// From left to right.
float SumOf(const float* values, size_t count);

// sum[i] = weight * values[i] if is_first, otherwise sum[i] + weight * values[i].
void AddWeighted(const float* values, float weight, size_t count, bool is_first, float* sum);

// output[i] = values[i] / divisor; it may equal values.
void DivideAll(const float* values, float divisor, size_t count, float* output);

// Rounds to `type` once. Returns whether every output is finite.
bool RoundAll(const float* values, size_t count, DataType type, void* output);

}  // namespace onebit::kernels::cpu
