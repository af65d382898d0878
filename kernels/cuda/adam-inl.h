// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Elementwise optimizer updates. Each reads and writes every array of its formula once.
#pragma once

#include <cstdint>

#include "kernels/cuda/params.h"
#include "kernels/cuda/quads.h"
#include "kernels/cuda/tiles.h"
#include "kernels/reference/moments.h"

namespace onebit::kernels::cuda {

// An fp32 array that is read and written.
struct State {
  ONEBIT_KERNEL explicit State(float* data)
      : to(ArrayAt(static_cast<void*>(data), DataType::kF32)) {}

  ONEBIT_KERNEL Quad<float> Load(uint64_t i, unsigned count) const {
    return LoadQuad({to.data, to.type, to.is_aligned}, i, count);
  }
  ONEBIT_KERNEL void Store(const Quad<float>& values, uint64_t i, unsigned count) const {
    StoreQuad(values, to, i, count);
  }

  Output to;
};

// An fp32 array that is only read.
ONEBIT_KERNEL Input ReadOnly(const float* data) {
  return ArrayAt(static_cast<const void*>(data), DataType::kF32);
}

// Calls body(i, count) on the lanes that have the `count` elements from `i` on.
template <class Body>
ONEBIT_KERNEL void ForEachQuad(const Warp& warp, uint64_t begin, uint64_t end, const Body& body) {
  for (uint64_t group = begin; group < end; group += kGroup) {
    warp.ForEachLane([&](unsigned lane) {
      const uint64_t i = group + kQuad * lane;
      const unsigned count = QuadCount(i, end);
      if (count != 0) body(i, count);
    });
  }
}

template <class Body>
ONEBIT_KERNEL void ForEachElementQuad(const Warp& warp, uint64_t element_count, const Body& body) {
  ForEachRange(warp, element_count, kElementTile,
               [&](uint64_t begin, uint64_t end) { ForEachQuad(warp, begin, end, body); });
}

template <bool kIsFrozen>
ONEBIT_KERNEL void RunAdam(const Warp& warp, const AdamUpdate& p) {
  const State x(p.x), m(p.m);
  const Input v_in = ReadOnly(p.v);
  const Input input = ArrayAt(p.input, p.input_type);
  const Output copy = ArrayAt(p.copy, p.copy_type);
  ForEachElementQuad(warp, p.count, [&](uint64_t i, unsigned count) {
    const float floor = reference::FloorAt(p, i);
    const uint32_t part = PartOfQuad(p.mask, i, count);
    const Quad<float> given = LoadQuad(input, i, count);
    Quad<float> new_x = x.Load(i, count);
    Quad<float> new_v = LoadQuad(v_in, i, count);
    Quad<float> new_m;
    if constexpr (!kIsFrozen) new_m = m.Load(i, count);
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      float u = 0;
      if ((part >> c & 1) != 0) {
        const float g = given.at[c] * p.input_scale;
        if constexpr (kIsFrozen) {
          new_m.at[c] = g;
        } else {
          new_m.at[c] = reference::NextMomentum(p.beta1, p.one_minus_beta1, new_m.at[c], g);
          new_v.at[c] = reference::NextVariance(p.beta2, p.one_minus_beta2, new_v.at[c], g);
        }
        const float den = reference::Denominator(new_v.at[c], p.v_correction, floor, p.eps);
        u = (new_m.at[c] * p.m_correction) / den;
      } else {
        new_m.at[c] = 0;
      }
      const float decayed = u + p.weight_decay * new_x.at[c];
      new_x.at[c] = new_x.at[c] - p.lr * decayed;
    }
    m.Store(new_m, i, count);
    if constexpr (!kIsFrozen) State(p.v).Store(new_v, i, count);
    x.Store(new_x, i, count);
    if (p.copy != nullptr) StoreQuad(new_x, copy, i, count);
  });
}

ONEBIT_KERNEL void RunAdamDense(const Warp& warp, const AdamUpdate& p) { RunAdam<false>(warp, p); }
ONEBIT_KERNEL void RunAdamFrozen(const Warp& warp, const AdamUpdate& p) { RunAdam<true>(warp, p); }

ONEBIT_KERNEL void RunLocalMomentum(const Warp& warp, const LocalMomentumParams& p) {
  const Input m = ReadOnly(p.m);
  const Input g = ArrayAt(p.g, p.g_type);
  const State out(p.out);
  ForEachElementQuad(warp, p.count, [&](uint64_t i, unsigned count) {
    const uint32_t part = PartOfQuad(p.mask, i, count);
    const Quad<float> old_m = LoadQuad(m, i, count);
    Quad<float> values = LoadQuad(g, i, count);
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      const float next = reference::NextMomentum(p.beta1, p.one_minus_beta1, old_m.at[c],
                                                 values.at[c] * p.g_scale);
      values.at[c] = (part >> c & 1) != 0 ? next : 0;
    }
    out.Store(values, i, count);
  });
}

ONEBIT_KERNEL void RunRefreshVariance(const Warp& warp, const RefreshVarianceParams& p) {
  const Input v = ReadOnly(p.v);
  const Input input = ArrayAt(p.input, p.type);
  const State out(p.out);
  ForEachElementQuad(warp, p.count, [&](uint64_t i, unsigned count) {
    const Quad<float> old_v = LoadQuad(v, i, count);
    Quad<float> values = LoadQuad(input, i, count);
    ONEBIT_UNROLL
    for (unsigned c = 0; c < kQuad; ++c) {
      values.at[c] = reference::NextVariance(p.beta2, p.one_minus_beta2, old_v.at[c],
                                             values.at[c] * p.input_scale);
    }
    out.Store(values, i, count);
  });
}

}  // namespace onebit::kernels::cuda
