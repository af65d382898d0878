// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Local and synchronising steps of 0/1 Adam in one pass over memory.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/zero_one.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/copy-inl.h"
#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/moments-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/moments.h"
#include "kernels/zero_one.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

enum class Step { kLocal, kAccumulate, kSync };

HWY_INLINE VF DenominatorAt(const ZeroOneUpdate& u, size_t i) {
  return Denominator(hn::LoadU(kF32, u.v + i), u.v_correction, u.floor, u.eps);
}

// Moves x away from x_sync by the steps accumulated in `sum`.
HWY_INLINE VF MovedFrom(const ZeroOneUpdate& u, VF x_sync, VF sum, VF den, MF takes_part) {
  const VF quotient = hn::IfThenElseZero(takes_part, hn::Div(sum, den));
  const VF decay = hn::Set(kF32, u.weight_decay * u.lr_sum);
  const VF move = hn::Add(quotient, hn::Mul(decay, x_sync));
  return hn::Sub(x_sync, hn::Mul(hn::Set(kF32, u.lr_scale), move));
}

// Processes elements i, i + 1, ... of a local step or of a rank's contribution.
template <Step kStep, DataType kInput>
HWY_INLINE void StepForward(const ZeroOneUpdate& u, size_t i, MF takes_part, float* out) {
  VF g = hn::Zero(kF32);
  if (u.input != nullptr) {
    g = hn::Mul(LoadF32<kInput>(u.input, i), hn::Set(kF32, u.input_scale));
  }
  const VF m = NextMomentum(u.beta1, u.one_minus_beta1, hn::LoadU(kF32, u.m + i), g);
  VF step = m;
  if (u.local_decay != 0) {
    const VF decay = hn::Mul(hn::Set(kF32, u.local_decay), hn::LoadU(kF32, u.x + i));
    step = hn::Add(m, hn::Mul(decay, DenominatorAt(u, i)));
  }
  const VF moved = hn::Add(hn::LoadU(kF32, u.u + i), hn::Mul(hn::Set(kF32, u.lr), step));
  const VF sum = hn::IfThenElseZero(takes_part, moved);
  if constexpr (kStep == Step::kAccumulate) {
    hn::StoreU(sum, kF32, out + i);
  } else {
    const VF x_sync = hn::LoadU(kF32, u.x_sync + i);
    const VF x = MovedFrom(u, x_sync, sum, DenominatorAt(u, i), takes_part);
    hn::StoreU(hn::IfThenElseZero(takes_part, m), kF32, u.m + i);
    hn::StoreU(sum, kF32, u.u + i);
    hn::StoreU(x, kF32, u.x + i);
  }
}

// Updates elements i, i + 1, ... with the mean of all contributions.
HWY_INLINE void TakeMean(const ZeroOneUpdate& u, size_t i, MF takes_part) {
  const VF sum = hn::IfThenElseZero(takes_part, LoadF32<DataType::kF32>(u.input, i));
  const VF x_sync = hn::LoadU(kF32, u.x_sync + i);
  const VF x = MovedFrom(u, x_sync, sum, DenominatorAt(u, i), takes_part);
  hn::StoreU(hn::Div(sum, hn::Set(kF32, u.lr_sum)), kF32, u.m + i);
  hn::StoreU(hn::Zero(kF32), kF32, u.u + i);
  hn::StoreU(x, kF32, u.x + i);
  hn::StoreU(x, kF32, u.x_sync + i);
}

// Updates vectors from element 0 on; element i has mask bit `first_bit` + i (padded).
template <Step kStep, DataType kInput>
HWY_INLINE void UpdateVectors(const ZeroOneUpdate& update, size_t count, size_t first_bit,
                              float* out) {
  const ZeroOneUpdate u = update;  // stays in registers across stores
  const MF all = hn::FirstN(kF32, kLanes);
  for (size_t i = 0; i < count; i += kLanes) {
    const MF takes_part = u.mask == nullptr ? all : MaskOfBits(u.mask, first_bit + i);
    if constexpr (kStep == Step::kSync) {
      TakeMean(u, i, takes_part);
    } else {
      StepForward<kStep, kInput>(u, i, takes_part, out);
    }
  }
}

// Updates a tile, using copies for the last, partial vector.
template <Step kStep, DataType kInput>
HWY_NOINLINE void UpdateTile(const ZeroOneUpdate& u, float* out) {
  const size_t whole = u.count / kLanes * kLanes;
  UpdateVectors<kStep, kInput>(u, whole, 0, out);
  const size_t left = u.count - whole;
  if (left == 0) return;
  LastVector<float> x, m, sum, x_sync, v, contribution;
  LastVector<ElementOf<kInput>> input;
  ZeroOneUpdate last = u;
  last.x = x.Take(u.x, whole, left);
  last.m = m.Take(u.m, whole, left);
  last.u = sum.Take(u.u, whole, left);
  last.x_sync = x_sync.Take(u.x_sync, whole, left);
  last.v = v.Take(u.v, whole, left);
  last.input = input.Take(u.input, whole, left);
  UpdateVectors<kStep, kInput>(last, kLanes, whole, contribution.element);
  if constexpr (kStep == Step::kAccumulate) {
    contribution.Return(out, whole, left);
  } else {
    x.Return(u.x, whole, left);
    m.Return(u.m, whole, left);
    sum.Return(u.u, whole, left);
    if constexpr (kStep == Step::kSync) x_sync.Return(u.x_sync, whole, left);
  }
}

// Element `begin` of an array that may be null.
template <class Element>
HWY_INLINE Element* At(Element* array, size_t begin) {
  return array == nullptr ? nullptr : array + begin;
}

template <Step kStep, DataType kInput>
void UpdateAs(const ZeroOneUpdate& u, float* out) {
  TileBits mask_bits;
  for (size_t begin = 0; begin < u.count; begin += kTile) {
    ZeroOneUpdate tile = u;
    tile.count = std::min(kTile, u.count - begin);
    tile.x = At(u.x, begin);
    tile.m += begin;
    tile.u += begin;
    tile.x_sync = At(u.x_sync, begin);
    tile.v = At(u.v, begin);
    tile.floor = reference::FloorAt(u, begin);
    tile.input = At(static_cast<const ElementOf<kInput>*>(u.input), begin);
    if (u.mask != nullptr) {
      CopyBitsPadded(u.mask + begin / 8, tile.count, mask_bits.bytes);
      tile.mask = mask_bits.bytes;
    }
    UpdateTile<kStep, kInput>(tile, At(out, begin));
    if (kStep == Step::kAccumulate || u.copy == nullptr) continue;
    // The tile's x is still in the first-level cache.
    WriteCopy(tile.x, tile.count, u.copy_type,
              static_cast<char*>(u.copy) + begin * BytesOf(u.copy_type));
  }
}

template <Step kStep>
void Update(const ZeroOneUpdate& u, float* out) {
  switch (u.input_type) {
    case DataType::kF32:
      return UpdateAs<kStep, DataType::kF32>(u, out);
    case DataType::kF16:
      return UpdateAs<kStep, DataType::kF16>(u, out);
    case DataType::kBf16:
      return UpdateAs<kStep, DataType::kBf16>(u, out);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

// ---- Variance

struct VarianceInput {
  const float* v;
  const void* input;
  float input_scale;
  float beta2;
  float one_minus_beta2;
};

template <DataType kType>
HWY_INLINE void RefreshVectors(const VarianceInput& in, size_t count, float* out) {
  for (size_t i = 0; i < count; i += kLanes) {
    const VF g = hn::Mul(LoadF32<kType>(in.input, i), hn::Set(kF32, in.input_scale));
    const VF v = hn::LoadU(kF32, in.v + i);
    hn::StoreU(NextVariance(in.beta2, in.one_minus_beta2, v, g), kF32, out + i);
  }
}

template <DataType kType>
HWY_NOINLINE void RefreshAs(const VarianceInput& input, size_t count, float* out) {
  const VarianceInput in = input;  // stays in registers across stores
  const size_t whole = count / kLanes * kLanes;
  RefreshVectors<kType>(in, whole, out);
  const size_t left = count - whole;
  if (left == 0) return;
  LastVector<float> v;
  LastVector<ElementOf<kType>> g;
  VarianceInput last = in;
  last.v = v.Take(in.v, whole, left);
  last.input = g.Take(in.input, whole, left);
  RefreshVectors<kType>(last, kLanes, v.element);
  v.Return(out, whole, left);
}

void Refresh(const VarianceInput& in, DataType type, size_t count, float* out) {
  switch (type) {
    case DataType::kF32:
      return RefreshAs<DataType::kF32>(in, count, out);
    case DataType::kF16:
      return RefreshAs<DataType::kF16>(in, count, out);
    case DataType::kBf16:
      return RefreshAs<DataType::kBf16>(in, count, out);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

}  // namespace

void ZeroOneLocal(const ZeroOneUpdate& update) { Update<Step::kLocal>(update, nullptr); }

void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  Update<Step::kAccumulate>(update, out);
}

void ZeroOneSync(const ZeroOneUpdate& update) {
  UpdateAs<Step::kSync, DataType::kF32>(update, nullptr);
}

void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  Refresh({.v = v,
           .input = input,
           .input_scale = input_scale,
           .beta2 = beta2,
           .one_minus_beta2 = one_minus_beta2},
          type, count, out);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(ZeroOneLocal);
HWY_EXPORT(ZeroOneAccumulate);
HWY_EXPORT(ZeroOneSync);
HWY_EXPORT(RefreshVariance);

void ZeroOneLocal(const ZeroOneUpdate& update) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(ZeroOneLocal)(update);
}

void ZeroOneAccumulate(const ZeroOneUpdate& update, float* out) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(ZeroOneAccumulate)(update, out);
}

void ZeroOneSync(const ZeroOneUpdate& update) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(ZeroOneSync)(update);
}

void RefreshVariance(const float* v, const void* input, DataType type, float input_scale,
                     float beta2, float one_minus_beta2, size_t count, float* out) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(RefreshVariance)
  (v, input, type, input_scale, beta2, one_minus_beta2, count, out);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
