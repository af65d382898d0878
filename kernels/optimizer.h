// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Elementwise optimizer updates and their reductions. The rules of kernels.h apply: no allocation,
// results equal to the bit in `reference` and `cpu` (no fused multiply-add, IEEE division and
// square root), floating-point control register saved and restored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit::kernels {

// One Adam-shaped update of `count` elements, in one pass over memory. Every step of the formula is
// a separate fp32 operation, written here in evaluation order:
//   dense (v is live):   m = b1*m + (1-b1)*g      v = b2*v + ((1-b2)*g)*g
//   compressed (frozen): m = m_new                v unchanged
//   den  = max(sqrt(v), floor) + eps
//   u    = (m * m_correction) / (den of v * v_correction)  -- corrections only when != 1
//   x    = x - lr * (u + weight_decay * x)
struct AdamUpdate {
  float* x = nullptr;
  float* m = nullptr;
  float* v = nullptr;  // read only in AdamFrozen
  // Averaged gradient (dense) or averaged momentum (frozen). In AdamFrozen it may be m itself: then
  // the present momentum moves x.
  const void* input = nullptr;
  DataType input_type = DataType::kF32;
  size_t count = 0;
  float lr = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float eps = 0;
  float weight_decay = 0;
  float input_scale = 1;   // g = input * input_scale (the common clip factor)
  float m_correction = 1;  // 1 / (1 - b1^t), or 1
  float v_correction = 1;  // 1 / (1 - b2^t), or 1; multiplies v before the square root
  float floor = 0;         // variance_floor * RMS of the segment's sqrt(v * v_correction); 0: none
  // AdamFrozen: instead of `floor`, one for every kTensorSumBlock elements; null: there are none.
  const float* block_floors = nullptr;
  // May be null. For a clear bit the input is ignored, m = 0, v stays, u = 0 (weight decay only).
  const uint8_t* mask = nullptr;
  void* copy = nullptr;  // low-precision copy of x, or null
  DataType copy_type = DataType::kF32;
};

#define ONEBIT_OPTIMIZER_DECLARE                                                                 \
  void AdamDense(const AdamUpdate& update);                                                      \
  void AdamFrozen(const AdamUpdate& update);                                                     \
  /* out = b1*m + (1-b1)*(g*g_scale), 0 where masked. out may equal g when g_type is kF32. */    \
  void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1, \
                     float one_minus_beta1, const uint8_t* mask, size_t count, float* out);      \
  /* Sums in the fixed order of FORMAT.md (fp32 block sums of kTensorSumBlock elements added in  \
     index order in fp64): the same on every processor. Non-finite if any element is. */         \
  double SumOfSquares(const void* values, DataType type, size_t count);                          \
  double SumOfMagnitudes(const void* values, DataType type, size_t count);                       \
  /* mask bit i = v[i] != 0 (BitBytes(count) bytes). Returns how many bits are set. */           \
  size_t MaskOfNonzero(const float* v, size_t count, uint8_t* mask);

ONEBIT_DECLARE_TWICE(ONEBIT_OPTIMIZER_DECLARE)

#undef ONEBIT_OPTIMIZER_DECLARE

}  // namespace onebit::kernels
