// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Adam-shaped updates in one pass over memory.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adam.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/copy-inl.h"
#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/optimizer.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/moments.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Updates vectors from element 0 on; element i has mask bit `first_bit` + i (padded).
template <bool kDense, DataType kInput, bool kMasked>
HWY_INLINE void UpdateVectors(const AdamUpdate& u, size_t count, size_t first_bit) {
  const VF beta1 = hn::Set(kF32, u.beta1);
  const VF beta2 = hn::Set(kF32, u.beta2);
  const VF one_minus_beta1 = hn::Set(kF32, u.one_minus_beta1);
  const VF one_minus_beta2 = hn::Set(kF32, u.one_minus_beta2);
  const VF input_scale = hn::Set(kF32, u.input_scale);
  const VF m_correction = hn::Set(kF32, u.m_correction);  // multiplying by 1 changes nothing
  const VF v_correction = hn::Set(kF32, u.v_correction);
  const VF floor = hn::Set(kF32, u.floor);
  const VF eps = hn::Set(kF32, u.eps);
  const VF lr = hn::Set(kF32, u.lr);
  const VF weight_decay = hn::Set(kF32, u.weight_decay);
  for (size_t i = 0; i < count; i += kLanes) {
    [[maybe_unused]] MF takes_part;
    if constexpr (kMasked) takes_part = MaskOfBits(u.mask, first_bit + i);
    const VF g = hn::Mul(LoadF32<kInput>(u.input, i), input_scale);
    VF m = g;
    VF v = hn::LoadU(kF32, u.v + i);
    if constexpr (kDense) {
      m = hn::Add(hn::Mul(beta1, hn::LoadU(kF32, u.m + i)), hn::Mul(one_minus_beta1, g));
      const VF old_v = v;
      v = hn::Add(hn::Mul(beta2, v), hn::Mul(hn::Mul(one_minus_beta2, g), g));
      if constexpr (kMasked) v = hn::IfThenElse(takes_part, v, old_v);
      hn::StoreU(v, kF32, u.v + i);
    }
    if constexpr (kMasked) m = hn::IfThenElseZero(takes_part, m);
    hn::StoreU(m, kF32, u.m + i);
    const VF root = hn::Sqrt(hn::Mul(v, v_correction));
    const VF den = hn::Add(hn::IfThenElse(hn::Lt(root, floor), floor, root), eps);
    VF step = hn::Div(hn::Mul(m, m_correction), den);
    if constexpr (kMasked) step = hn::IfThenElseZero(takes_part, step);
    const VF x = hn::LoadU(kF32, u.x + i);
    const VF decayed = hn::Add(step, hn::Mul(weight_decay, x));
    hn::StoreU(hn::Sub(x, hn::Mul(lr, decayed)), kF32, u.x + i);
  }
}

// Updates a tile, using copies for the last, partial vector.
template <bool kDense, DataType kInput, bool kMasked>
HWY_NOINLINE void UpdateTile(const AdamUpdate& u) {
  const size_t whole = u.count / kLanes * kLanes;
  UpdateVectors<kDense, kInput, kMasked>(u, whole, 0);
  const size_t left = u.count - whole;
  if (left == 0) return;
  LastVector<float> x, m, v;
  LastVector<ElementOf<kInput>> input;
  AdamUpdate last = u;
  last.x = x.Take(u.x, whole, left);
  last.m = m.Take(u.m, whole, left);
  last.v = v.Take(u.v, whole, left);
  last.input = input.Take(u.input, whole, left);
  UpdateVectors<kDense, kInput, kMasked>(last, kLanes, whole);
  x.Return(u.x, whole, left);
  m.Return(u.m, whole, left);
  if constexpr (kDense) v.Return(u.v, whole, left);
}

template <bool kDense, DataType kInput>
void UpdateAs(const AdamUpdate& u) {
  TileBits mask_bits;
  for (size_t begin = 0; begin < u.count; begin += kTile) {
    AdamUpdate tile = u;
    tile.count = std::min(kTile, u.count - begin);
    tile.x += begin;
    tile.m += begin;
    tile.v += begin;
    tile.input = static_cast<const ElementOf<kInput>*>(u.input) + begin;
    tile.floor = reference::FloorAt(u, begin);
    if (u.mask == nullptr) {
      UpdateTile<kDense, kInput, false>(tile);
    } else {
      CopyBitsPadded(u.mask + begin / 8, tile.count, mask_bits.bytes);
      tile.mask = mask_bits.bytes;
      UpdateTile<kDense, kInput, true>(tile);
    }
    if (u.copy == nullptr) continue;
    // The tile's x is still in the first-level cache.
    WriteCopy(tile.x, tile.count, u.copy_type,
              static_cast<char*>(u.copy) + begin * BytesOf(u.copy_type));
  }
}

template <bool kDense>
void Update(const AdamUpdate& u) {
  switch (u.input_type) {
    case DataType::kF32:
      return UpdateAs<kDense, DataType::kF32>(u);
    case DataType::kF16:
      return UpdateAs<kDense, DataType::kF16>(u);
    case DataType::kBf16:
      return UpdateAs<kDense, DataType::kBf16>(u);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

}  // namespace

void AdamDense(const AdamUpdate& update) { Update<true>(update); }

void AdamFrozen(const AdamUpdate& update) { Update<false>(update); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(AdamDense);
HWY_EXPORT(AdamFrozen);

void AdamDense(const AdamUpdate& update) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(AdamDense)(update);
}

void AdamFrozen(const AdamUpdate& update) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(AdamFrozen)(update);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
