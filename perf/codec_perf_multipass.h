// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Error-feedback compression the way frameworks compose it: one pass over memory per tensor
// operation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit::perf {

// Preallocated, `count` elements each, a multiple of 64.
struct MultiPassBuffers {
  const float* input;
  const float* residual_in;
  float* residual_out;
  float* compensated;
  float* signs;
  float* decoded;
  uint8_t* bits;
  size_t count;
};

// Six vectorised passes with one l2 scale: add, norm, sign, scale, subtract, pack. As in
// frameworks, signs are a tensor of the input's type; unlike there, nothing is allocated. Returns
// the scale.
float CompressInSixPasses(const MultiPassBuffers& buffers);

}  // namespace onebit::perf
