// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Moments of a layer and the norms for its trust ratio.
#include "kernels/lamb.h"

#include <algorithm>

#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/moments.h"

namespace onebit::kernels::reference {
namespace {

double SquaredNorm(const float* values, size_t count) {
  return BlockSum(count, ScaleRule::kL2, [&](size_t i) { return values[i]; });
}

// `step` gives element i its new moments and returns its denominator.
template <class Step>
LambNorms UpdateInBlocks(const LambUpdate& update, const Step& step) {
  LambNorms norms;
  float up[kTensorSumBlock];
  float decayed[kTensorSumBlock];
  for (size_t begin = 0; begin < update.count; begin += kTensorSumBlock) {
    const size_t count = std::min(kTensorSumBlock, update.count - begin);
    for (size_t k = 0; k < count; ++k) {
      const size_t i = begin + k;
      up[k] = 0;
      if (TakesPart(update.mask, i)) {
        const float den = step(i);
        up[k] = (update.m[i] * update.m_correction) / den;
      } else {
        update.m[i] = 0;
      }
      decayed[k] = up[k] + update.weight_decay * update.x[i];
    }
    norms.x_squared += SquaredNorm(update.x + begin, count);
    norms.update_squared += SquaredNorm(up, count);
    norms.decayed_squared += SquaredNorm(decayed, count);
  }
  return norms;
}

float InputAt(const LambUpdate& update, size_t i) {
  return LoadElement(update.input, update.input_type, i) * update.input_scale;
}

float DenominatorAt(const LambUpdate& update, size_t i) {
  return Denominator(update.v[i], update.v_correction, update.floor, update.eps);
}

}  // namespace

LambNorms LambDense(const LambUpdate& update) {
  return InDefaultFpEnvironment([&] {
    return UpdateInBlocks(update, [&](size_t i) {
      const float g = InputAt(update, i);
      update.m[i] = NextMomentum(update.beta1, update.one_minus_beta1, update.m[i], g);
      update.v[i] = NextVariance(update.beta2, update.one_minus_beta2, update.v[i], g);
      return DenominatorAt(update, i);
    });
  });
}

LambNorms LambFrozen(const LambUpdate& update) {
  return InDefaultFpEnvironment([&] {
    float max_ratio = 0;
    LambNorms norms = UpdateInBlocks(update, [&](size_t i) {
      const float new_m = InputAt(update, i);
      const float kept = update.beta1 * update.m[i];
      const float ghat = (new_m - kept) / update.one_minus_beta1;
      float& fresh = update.v_fresh[i];
      fresh = NextVariance(update.beta2, update.one_minus_beta2, fresh, ghat);
      update.m[i] = new_m;
      const float den = DenominatorAt(update, i);
      const float ratio =
          den / Denominator(fresh, update.v_fresh_correction, update.floor, update.eps);
      if (ratio > max_ratio) max_ratio = ratio;
      return den;
    });
    norms.max_ratio = max_ratio;
    return norms;
  });
}

}  // namespace onebit::kernels::reference
