// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Moments of a layer and the norms for its trust ratio in one pass over memory. A tile is one block
// of the sums, which are accumulated while the tile is updated.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lamb.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/moments-inl.h"
#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/lamb.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

struct TileSums {
  SumLanes x, update, decayed;
  alignas(64) float max_ratio[kLanes];

  HWY_INLINE void Clear() {
    x.Clear();
    update.Clear();
    decayed.Clear();
    hn::Store(hn::Zero(kF32), kF32, max_ratio);
  }
};

HWY_INLINE void AddSquares(VF z, size_t i, SumLanes& sums) {
  float* lane = sums.lane + i % kSumLanes;
  hn::Store(AddTerm<Sum::kL2>(hn::Load(kF32, lane), z), kF32, lane);
}

HWY_INLINE VF DenominatorOf(const LambUpdate& u, VF v) {
  return Denominator(v, u.v_correction, u.floor, u.eps);
}

HWY_INLINE VF UpdateOf(const LambUpdate& u, VF m, VF den, MF takes_part) {
  return hn::IfThenElseZero(takes_part, hn::Div(hn::Mul(m, hn::Set(kF32, u.m_correction)), den));
}

HWY_INLINE VF DecayedOf(const LambUpdate& u, VF up, VF x) {
  return hn::Add(up, hn::Mul(hn::Set(kF32, u.weight_decay), x));
}

// Updates elements [0, count), whole vectors or less than one; they are elements `first` + i of the
// tile, whose mask is padded. Elements beyond `count` take no part and must be 0 in x, so that they
// add nothing to the sums even if 0 / 0 is computed.
template <bool kDense, DataType kInput>
HWY_INLINE void UpdateVectors(const LambUpdate& update, size_t count, size_t first,
                              TileSums& sums) {
  const LambUpdate u = update;  // stays in registers across stores
  const MF is_inside = hn::FirstN(kF32, count);
  VF max_ratio = hn::Load(kF32, sums.max_ratio);
  for (size_t i = 0; i < count; i += kLanes) {
    FetchAhead<DataType::kF32>(u.x, i);
    FetchAhead<DataType::kF32>(u.m, i);
    FetchAhead<DataType::kF32>(u.v, i);
    if constexpr (!kDense) FetchAhead<DataType::kF32>(u.v_fresh, i);
    FetchAhead<kInput>(u.input, i);
    const MF takes_part = u.mask == nullptr ? is_inside : MaskOfBits(u.mask, first + i);
    const VF scaled = hn::Mul(LoadF32<kInput>(u.input, i), hn::Set(kF32, u.input_scale));
    const VF old_m = hn::LoadU(kF32, u.m + i);
    VF m = scaled;
    VF v = hn::LoadU(kF32, u.v + i);
    if constexpr (kDense) {
      m = NextMomentum(u.beta1, u.one_minus_beta1, old_m, scaled);
      v = hn::IfThenElse(takes_part, NextVariance(u.beta2, u.one_minus_beta2, v, scaled), v);
      hn::StoreU(v, kF32, u.v + i);
    }
    m = hn::IfThenElseZero(takes_part, m);
    hn::StoreU(m, kF32, u.m + i);
    const VF den = DenominatorOf(u, v);
    if constexpr (!kDense) {
      const VF kept = hn::Mul(hn::Set(kF32, u.beta1), old_m);
      const VF ghat = hn::Div(hn::Sub(scaled, kept), hn::Set(kF32, u.one_minus_beta1));
      const VF old_fresh = hn::LoadU(kF32, u.v_fresh + i);
      const VF new_fresh = NextVariance(u.beta2, u.one_minus_beta2, old_fresh, ghat);
      const VF fresh = hn::IfThenElse(takes_part, new_fresh, old_fresh);
      hn::StoreU(fresh, kF32, u.v_fresh + i);
      const VF ratio = hn::Div(den, Denominator(fresh, u.v_fresh_correction, u.floor, u.eps));
      // Max would be wrong here: its result for a NaN depends on the target.
      const MF is_larger = hn::And(takes_part, hn::Gt(ratio, max_ratio));
      max_ratio = hn::IfThenElse(is_larger, ratio, max_ratio);
    }
    const VF x = hn::LoadU(kF32, u.x + i);
    const VF up = UpdateOf(u, m, den, takes_part);
    AddSquares(x, first + i, sums.x);
    AddSquares(up, first + i, sums.update);
    AddSquares(DecayedOf(u, up, x), first + i, sums.decayed);
  }
  hn::Store(max_ratio, kF32, sums.max_ratio);
}

// Updates a tile, using copies for the last, partial vector.
template <bool kDense, DataType kInput>
HWY_NOINLINE void UpdateTile(const LambUpdate& u, TileSums& sums) {
  const size_t whole = u.count / kLanes * kLanes;
  UpdateVectors<kDense, kInput>(u, whole, 0, sums);
  const size_t left = u.count - whole;
  if (left == 0) return;
  LastVector<float> x, m, v, v_fresh;
  LastVector<ElementOf<kInput>> input;
  LambUpdate last = u;
  last.x = x.Take(u.x, whole, left);
  last.m = m.Take(u.m, whole, left);
  last.v = v.Take(u.v, whole, left);
  last.input = input.Take(u.input, whole, left);
  if constexpr (!kDense) last.v_fresh = v_fresh.Take(u.v_fresh, whole, left);
  UpdateVectors<kDense, kInput>(last, left, whole, sums);
  m.Return(u.m, whole, left);
  if constexpr (kDense) v.Return(u.v, whole, left);
  if constexpr (!kDense) v_fresh.Return(u.v_fresh, whole, left);
}

// ---- Sums that may exceed fp32

// The elements of all sums of a tile, padded with zeros to whole vectors.
struct Elements {
  alignas(64) float x[kTile];
  alignas(64) float update[kTile];
  alignas(64) float decayed[kTile];
};

HWY_INLINE void CopyPadded(const float* from, size_t count, float* to) {
  hn::Store(hn::Zero(kF32), kF32, to + (count - 1) / kLanes * kLanes);
  memcpy(to, from, count * sizeof(float));
}

// Computes the elements of the sums again, from the new m and v of the tile.
HWY_INLINE void FormElements(const LambUpdate& u, Elements& z) {
  CopyPadded(u.x, u.count, z.x);
  CopyPadded(u.m, u.count, z.update);
  CopyPadded(u.v, u.count, z.decayed);
  for (size_t i = 0; i < u.count; i += kLanes) {
    const MF is_inside = hn::FirstN(kF32, u.count - i);
    const MF takes_part = u.mask == nullptr ? is_inside : MaskOfBits(u.mask, i);
    const VF den = DenominatorOf(u, hn::Load(kF32, z.decayed + i));
    const VF up = UpdateOf(u, hn::Load(kF32, z.update + i), den, takes_part);
    hn::Store(up, kF32, z.update + i);
    hn::Store(DecayedOf(u, up, hn::Load(kF32, z.x + i)), kF32, z.decayed + i);
  }
}

double SumAgain(float narrow, const float* z, size_t count) {
  if (IsSafeSum(narrow)) return narrow;
  WideSum wide;
  wide.Add(z, count, ScaleRule::kL2);
  return ChooseSumOf(narrow, wide, Residual::kNone).sum;
}

// A separate function, because its buffers would be most of a layer's stack.
HWY_NOINLINE void AddSumsAgain(const LambUpdate& u, const TileSums& sums, LambNorms& norms) {
  Elements z;
  FormElements(u, z);
  norms.x_squared += SumAgain(TreeSum(sums.x), z.x, u.count);
  norms.update_squared += SumAgain(TreeSum(sums.update), z.update, u.count);
  norms.decayed_squared += SumAgain(TreeSum(sums.decayed), z.decayed, u.count);
}

// ---- Tiles

HWY_INLINE void AddSums(const LambUpdate& u, const TileSums& sums, LambNorms& norms) {
  const float x = TreeSum(sums.x);
  const float update = TreeSum(sums.update);
  const float decayed = TreeSum(sums.decayed);
  if (IsSafeSum(x) && IsSafeSum(update) && IsSafeSum(decayed)) {
    norms.x_squared += x;
    norms.update_squared += update;
    norms.decayed_squared += decayed;
  } else {
    AddSumsAgain(u, sums, norms);
  }
  for (const float ratio : sums.max_ratio) norms.max_ratio = std::max(norms.max_ratio, ratio);
}

template <bool kDense, DataType kInput>
LambNorms UpdateAs(const LambUpdate& u) {
  TileBits mask_bits;
  TileSums sums;
  LambNorms norms;
  for (size_t begin = 0; begin < u.count; begin += kTile) {
    LambUpdate tile = u;
    tile.count = std::min(kTile, u.count - begin);
    tile.x += begin;
    tile.m += begin;
    tile.v += begin;
    if constexpr (!kDense) tile.v_fresh += begin;
    tile.input = static_cast<const ElementOf<kInput>*>(u.input) + begin;
    if (u.mask != nullptr) {
      CopyBitsPadded(u.mask + begin / 8, tile.count, mask_bits.bytes);
      tile.mask = mask_bits.bytes;
    }
    sums.Clear();
    UpdateTile<kDense, kInput>(tile, sums);
    AddSums(tile, sums, norms);
  }
  return norms;
}

template <bool kDense>
LambNorms Update(const LambUpdate& u) {
  switch (u.input_type) {
    case DataType::kF32:
      return UpdateAs<kDense, DataType::kF32>(u);
    case DataType::kF16:
      return UpdateAs<kDense, DataType::kF16>(u);
    case DataType::kBf16:
      return UpdateAs<kDense, DataType::kBf16>(u);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

}  // namespace

LambNorms LambDense(const LambUpdate& update) { return Update<true>(update); }

LambNorms LambFrozen(const LambUpdate& update) { return Update<false>(update); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(LambDense);
HWY_EXPORT(LambFrozen);

LambNorms LambDense(const LambUpdate& update) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LambDense)(update);
}

LambNorms LambFrozen(const LambUpdate& update) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LambFrozen)(update);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
