// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Local and synchronising steps of 0/1 Adam.
#pragma once

#include <cstdint>

#include "kernels/cuda/adam-inl.h"

namespace onebit::kernels::cuda {

// The arrays of an update; null ones are not touched.
struct ZeroOneArrays {
  ONEBIT_KERNEL explicit ZeroOneArrays(const ZeroOneUpdate& p)
      : x(p.x),
        m(p.m),
        u(p.u),
        x_sync(p.x_sync),
        v(ReadOnly(p.v)),
        input(ArrayAt(p.input, p.input_type)),
        copy(ArrayAt(p.copy, p.copy_type)) {}

  State x, m, u, x_sync;
  Input v, input;
  Output copy;
};

// The state of a quad after one more local step.
struct LocalQuad {
  Quad<float> m, u;
};

ONEBIT_KERNEL LocalQuad NextLocal(const ZeroOneUpdate& p, const ZeroOneArrays& arrays, uint64_t i,
                                  unsigned count) {
  const uint32_t part = PartOfQuad(p.mask, i, count);
  const bool has_decay = p.local_decay != 0;
  const float floor = reference::FloorAt(p, i);
  const Quad<float> old_m = arrays.m.Load(i, count);
  const Quad<float> old_u = arrays.u.Load(i, count);
  Quad<float> given, x, v;
  if (p.input != nullptr) given = LoadQuad(arrays.input, i, count);
  if (has_decay) {
    x = arrays.x.Load(i, count);
    v = LoadQuad(arrays.v, i, count);
  }
  LocalQuad next;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    if ((part >> c & 1) == 0) continue;
    const float g = p.input == nullptr ? 0 : given.at[c] * p.input_scale;
    const float m = reference::NextMomentum(p.beta1, p.one_minus_beta1, old_m.at[c], g);
    float step = m;
    if (has_decay) {
      const float decay = p.local_decay * x.at[c];
      step = m + decay * reference::Denominator(v.at[c], p.v_correction, floor, p.eps);
    }
    next.m.at[c] = m;
    next.u.at[c] = old_u.at[c] + p.lr * step;
  }
  return next;
}

// Moves x away from x_sync by the steps accumulated in `sum`. Stores x and its copy.
ONEBIT_KERNEL Quad<float> MoveParameter(const ZeroOneUpdate& p, const ZeroOneArrays& arrays,
                                        const Quad<float>& sum, uint64_t i, unsigned count) {
  const uint32_t part = PartOfQuad(p.mask, i, count);
  const float floor = reference::FloorAt(p, i);
  const Quad<float> v = LoadQuad(arrays.v, i, count);
  const Quad<float> x_sync = arrays.x_sync.Load(i, count);
  Quad<float> x;
  ONEBIT_UNROLL
  for (unsigned c = 0; c < kQuad; ++c) {
    const float den = reference::Denominator(v.at[c], p.v_correction, floor, p.eps);
    const float quotient = (part >> c & 1) != 0 ? sum.at[c] / den : 0;
    const float decay = p.weight_decay * p.lr_sum;
    const float move = quotient + decay * x_sync.at[c];
    x.at[c] = x_sync.at[c] - p.lr_scale * move;
  }
  arrays.x.Store(x, i, count);
  if (p.copy != nullptr) StoreQuad(x, arrays.copy, i, count);
  return x;
}

ONEBIT_KERNEL void RunZeroOneLocal(const Warp& warp, const ZeroOneUpdate& p) {
  const ZeroOneArrays arrays(p);
  ForEachElementQuad(warp, p.count, [&](uint64_t i, unsigned count) {
    const LocalQuad next = NextLocal(p, arrays, i, count);
    arrays.m.Store(next.m, i, count);
    arrays.u.Store(next.u, i, count);
    MoveParameter(p, arrays, next.u, i, count);
  });
}

ONEBIT_KERNEL void RunZeroOneAccumulate(const Warp& warp, const ZeroOneAccumulateParams& p) {
  const ZeroOneArrays arrays(p.update);
  const State out(p.out);
  ForEachElementQuad(warp, p.update.count, [&](uint64_t i, unsigned count) {
    out.Store(NextLocal(p.update, arrays, i, count).u, i, count);
  });
}

ONEBIT_KERNEL void RunZeroOneSync(const Warp& warp, const ZeroOneUpdate& p) {
  const ZeroOneArrays arrays(p);
  const Input mean = ReadOnly(static_cast<const float*>(p.input));
  ForEachElementQuad(warp, p.count, [&](uint64_t i, unsigned count) {
    const uint32_t part = PartOfQuad(p.mask, i, count);
    Quad<float> sum = LoadQuad(mean, i, count);
    Quad<float> m;
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      if ((part >> c & 1) == 0) sum.at[c] = 0;
      m.at[c] = sum.at[c] / p.lr_sum;
    }
    arrays.m.Store(m, i, count);
    arrays.x_sync.Store(MoveParameter(p, arrays, sum, i, count), i, count);
    arrays.u.Store({}, i, count);
  });
}

}  // namespace onebit::kernels::cuda
