// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Elementwise optimizer updates and their reductions.
#include "kernels/optimizer.h"

#include <algorithm>

#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/moments.h"

namespace onebit::kernels::reference {
namespace {

// The step that both updates share: moves x by the new m and v. A masked element has u = 0.
void MoveParameter(const AdamUpdate& update, size_t i, bool takes_part) {
  float u = 0;
  if (takes_part) {
    const float den = Denominator(update.v[i], update.v_correction, FloorAt(update, i), update.eps);
    u = (update.m[i] * update.m_correction) / den;
  }
  const float x = update.x[i];
  const float decayed = u + update.weight_decay * x;
  update.x[i] = x - update.lr * decayed;
  if (update.copy != nullptr) StoreElement(update.x[i], update.copy_type, i, update.copy);
}

double SumInBlocks(const void* values, DataType type, size_t count, ScaleRule rule) {
  return InDefaultFpEnvironment([&] {
    double sum = 0;
    for (size_t begin = 0; begin < count; begin += kTensorSumBlock) {
      sum += BlockSum(std::min(kTensorSumBlock, count - begin), rule,
                      [&](size_t i) { return LoadElement(values, type, begin + i); });
    }
    return sum;
  });
}

}  // namespace

void AdamDense(const AdamUpdate& update) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < update.count; ++i) {
      const bool takes_part = TakesPart(update.mask, i);
      if (takes_part) {
        const float g = LoadElement(update.input, update.input_type, i) * update.input_scale;
        update.m[i] = NextMomentum(update.beta1, update.one_minus_beta1, update.m[i], g);
        update.v[i] = NextVariance(update.beta2, update.one_minus_beta2, update.v[i], g);
      } else {
        update.m[i] = 0;
      }
      MoveParameter(update, i, takes_part);
    }
  });
}

void AdamFrozen(const AdamUpdate& update) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < update.count; ++i) {
      const bool takes_part = TakesPart(update.mask, i);
      update.m[i] =
          takes_part ? LoadElement(update.input, update.input_type, i) * update.input_scale : 0;
      MoveParameter(update, i, takes_part);
    }
  });
}

void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < count; ++i) {
      const float scaled = LoadElement(g, g_type, i) * g_scale;
      out[i] = TakesPart(mask, i) ? NextMomentum(beta1, one_minus_beta1, m[i], scaled) : 0;
    }
  });
}

double SumOfSquares(const void* values, DataType type, size_t count) {
  return SumInBlocks(values, type, count, ScaleRule::kL2);
}

double SumOfMagnitudes(const void* values, DataType type, size_t count) {
  return SumInBlocks(values, type, count, ScaleRule::kL1);
}

size_t MaskOfNonzero(const float* v, size_t count, uint8_t* mask) {
  // Comparison with 0 depends on the control register, too: denormals-are-zero would count
  // denormals as zero.
  return InDefaultFpEnvironment([&] {
    size_t nonzero_count = 0;
    for (size_t i = 0; i < count; ++i) {
      WriteBit(v[i] != 0, i, mask);
      nonzero_count += v[i] != 0 ? 1 : 0;
    }
    return nonzero_count;
  });
}

}  // namespace onebit::kernels::reference
