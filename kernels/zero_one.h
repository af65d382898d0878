// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Steps of 0/1 Adam: local ones, and the two halves of a synchronising one. The rules of
// optimizer.h apply.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace onebit::kernels {

// `count` elements of a rank whose parameters equalled those of all ranks, x_sync, when it last
// synchronised. Since then it has accumulated u, the sum of its steps before division by the
// denominator. Every step of the formula is a separate fp32 operation, written here in evaluation
// order:
//   g     = input * input_scale                      -- 0 if input is null
//   m'    = b1*m + (1-b1)*g
//   den   = max(sqrt(v * v_correction), floor) + eps
//   step  = m'                                       -- if local_decay == 0, else
//         = m' + (local_decay*x)*den                 -- with the x before the step
//   u'    = u + lr*step
//   X(s)  = x_sync - lr_scale * (s/den + (weight_decay*lr_sum)*x_sync)
// A local step takes m', u' and x = X(u'). In a synchronising step each rank contributes u', and
// with the mean of all contributions takes m = mean / lr_sum, x = X(mean) and u = 0. Both compute X
// by the same operations: a single rank, or ranks that agree, end with the same x either way.
struct ZeroOneUpdate {
  float* x = nullptr;
  float* m = nullptr;
  float* u = nullptr;
  float* x_sync = nullptr;  // written only in ZeroOneSync
  const float* v = nullptr;
  const void* input = nullptr;  // local gradient, or null; ZeroOneSync: mean of u', always fp32
  DataType input_type = DataType::kF32;
  size_t count = 0;
  float lr = 0;
  float lr_scale = 1;  // the segment's factor: scales x, not u, so that u has one scale throughout
  float beta1 = 0, one_minus_beta1 = 0;
  float eps = 0;
  float weight_decay = 0;  // decays x_sync, so that ranks decay alike and m does not include it
  float lr_sum = 0;        // over all steps in u, this one included; positive in ZeroOneSync
  float input_scale = 1;
  float floor = 0;  // see AdamUpdate, also for the next
  const float* block_floors = nullptr;
  float v_correction = 1;
  float local_decay = 0;  // DeepSpeed's weight decay, of this rank's x and included in u
  // May be null. For a clear bit the input is ignored, m = 0, u = 0, s/den = 0 (weight decay only).
  const uint8_t* mask = nullptr;
  void* copy = nullptr;  // low-precision copy of x, or null
  DataType copy_type = DataType::kF32;
};

#define ONEBIT_ZERO_ONE_DECLARE                                                                    \
  /* A local step: writes m, u, x and the copy. Reads x only if local_decay != 0. */               \
  void ZeroOneLocal(const ZeroOneUpdate& update);                                                  \
  /* What this rank contributes: out = u', 0 where masked; the state stays as it is. Reads x and v \
     only if local_decay != 0, and x_sync never. out may equal input when input_type is kF32. */   \
  void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out);                                 \
  /* After the collective, with its mean as the input: writes m, u, x, x_sync and the copy. Not    \
     used: input_type, input_scale, lr, the betas and local_decay. */                              \
  void ZeroOneSync(const ZeroOneUpdate& update);                                                   \
  /* out = b2*v + ((1-b2)*g)*g with g = input * input_scale. out may equal v, or input when `type` \
     is kF32. */                                                                                   \
  void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,        \
                       float beta2, float one_minus_beta2, size_t count, float* out);

ONEBIT_DECLARE_TWICE(ONEBIT_ZERO_ONE_DECLARE)

#undef ONEBIT_ZERO_ONE_DECLARE

}  // namespace onebit::kernels
