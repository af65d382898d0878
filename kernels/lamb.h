// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One layer of LAMB and 1-bit LAMB, up to its trust ratio. The rules of optimizer.h apply.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit::kernels {

// Computes new moments of `count` elements and the norms for the trust ratio, in one pass over
// memory. x does not move here, because its coefficient c is known only after the whole layer. Then
// AdamFrozen with input == m and lr * c computes u again, by the same operations, and moves x.
// Every step of the formula is a separate fp32 operation, written here in evaluation order:
//   dense (v is live):   g = input * input_scale
//                        m = b1*m + (1-b1)*g        v = b2*v + ((1-b2)*g)*g
//   frozen:              m_new = input * input_scale
//                        ghat = (m_new - b1*m) / (1-b1)     -- the mean gradient of m_new
//                        v_fresh = b2*v_fresh + ((1-b2)*ghat)*ghat
//                        m = m_new                  v unchanged
//   den       = max(sqrt(v * v_correction), floor) + eps
//   den_fresh = max(sqrt(v_fresh * v_fresh_correction), floor) + eps
//   up = (m * m_correction) / den
//   u  = up + weight_decay * x
// ghat magnifies compression errors, and its square may overflow: v_fresh then stays infinite,
// which excludes the element from the largest ratio and has no other effect.
struct LambUpdate {
  const float* x = nullptr;
  float* m = nullptr;
  float* v = nullptr;           // read only in LambFrozen
  float* v_fresh = nullptr;     // used only by LambFrozen
  const void* input = nullptr;  // averaged gradient (dense) or averaged, scaled momentum (frozen)
  DataType input_type = DataType::kF32;
  size_t count = 0;
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float eps = 0;
  float weight_decay = 0;
  float input_scale = 1;   // the common clip factor (dense), 1 / scale of the layer (frozen)
  float m_correction = 1;  // see AdamUpdate
  float v_correction = 1;
  float v_fresh_correction = 1;
  float floor = 0;
  // May be null. For a clear bit the input is ignored, m = 0, v and v_fresh stay, up = 0.
  const uint8_t* mask = nullptr;
};

// Masked elements count in all sums: their up is 0, their u is weight_decay * x. Sums of squares
// have the order and the range of SumOfSquares: non-finite if any of their elements is.
struct LambNorms {
  double x_squared = 0;        // sum of x^2
  double update_squared = 0;   // sum of up^2
  double decayed_squared = 0;  // sum of u^2
  // LambFrozen: the largest den / den_fresh of the elements that take part, 0 if there are none.
  // NaN quotients are skipped. LambDense: 0.
  float max_ratio = 0;
};

#define ONEBIT_LAMB_DECLARE                      \
  LambNorms LambDense(const LambUpdate& update); \
  LambNorms LambFrozen(const LambUpdate& update);

ONEBIT_DECLARE_TWICE(ONEBIT_LAMB_DECLARE)

#undef ONEBIT_LAMB_DECLARE

}  // namespace onebit::kernels
