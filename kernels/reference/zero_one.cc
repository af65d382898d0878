// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Local and synchronising steps of 0/1 Adam.
#include "kernels/zero_one.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/moments.h"

namespace onebit::kernels::reference {
namespace {

float DenominatorAt(const ZeroOneUpdate& update, size_t i) {
  return Denominator(update.v[i], update.v_correction, FloorAt(update, i), update.eps);
}

// The state of element i after one more local step.
struct LocalState {
  float m = 0;
  float u = 0;
};

LocalState NextLocal(const ZeroOneUpdate& update, size_t i) {
  if (!TakesPart(update.mask, i)) return {};
  const float g = update.input == nullptr
                      ? 0
                      : LoadElement(update.input, update.input_type, i) * update.input_scale;
  const float m = NextMomentum(update.beta1, update.one_minus_beta1, update.m[i], g);
  float step = m;
  if (update.local_decay != 0) {
    const float decay = update.local_decay * update.x[i];
    step = m + decay * DenominatorAt(update, i);
  }
  return {.m = m, .u = update.u[i] + update.lr * step};
}

// Moves x away from x_sync by the steps accumulated in `sum`.
void MoveParameter(const ZeroOneUpdate& update, size_t i, float sum) {
  const float quotient = TakesPart(update.mask, i) ? sum / DenominatorAt(update, i) : 0;
  const float decay = update.weight_decay * update.lr_sum;
  const float move = quotient + decay * update.x_sync[i];
  update.x[i] = update.x_sync[i] - update.lr_scale * move;
  if (update.copy != nullptr) StoreElement(update.x[i], update.copy_type, i, update.copy);
}

}  // namespace

void ZeroOneLocal(const ZeroOneUpdate& update) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < update.count; ++i) {
      const LocalState next = NextLocal(update, i);
      update.m[i] = next.m;
      update.u[i] = next.u;
      MoveParameter(update, i, next.u);
    }
  });
}

void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < update.count; ++i) out[i] = NextLocal(update, i).u;
  });
}

void ZeroOneSync(const ZeroOneUpdate& update) {
  InDefaultFpEnvironment([&] {
    const auto* mean = static_cast<const float*>(update.input);
    for (size_t i = 0; i < update.count; ++i) {
      const float sum = TakesPart(update.mask, i) ? mean[i] : 0;
      update.m[i] = sum / update.lr_sum;
      MoveParameter(update, i, sum);
      update.x_sync[i] = update.x[i];
      update.u[i] = 0;
    }
  });
}

void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  InDefaultFpEnvironment([&] {
    for (size_t i = 0; i < count; ++i) {
      const float g = LoadElement(input, type, i) * input_scale;
      out[i] = NextVariance(beta2, one_minus_beta2, v[i], g);
    }
  });
}

}  // namespace onebit::kernels::reference
