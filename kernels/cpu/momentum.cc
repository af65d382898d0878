// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The momentum of this rank, from its scaled gradients.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/momentum.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/last_vector-inl.h"
#include "kernels/cpu/moments-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/optimizer.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// out = b1 * m + (1 - b1) * (g * g_scale)
struct MomentumInput {
  const void* g;
  const float* m;
  const uint8_t* mask;  // padded, or null
  float g_scale;
  float beta1;
  float one_minus_beta1;
};

template <DataType kType>
HWY_INLINE VF MomentumAt(const MomentumInput& in, size_t i) {
  const VF g = hn::Mul(LoadF32<kType>(in.g, i), hn::Set(kF32, in.g_scale));
  return NextMomentum(in.beta1, in.one_minus_beta1, hn::LoadU(kF32, in.m + i), g);
}

template <DataType kType>
HWY_NOINLINE void WriteTile(const MomentumInput& in, size_t count, float* out) {
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    VF value = MomentumAt<kType>(in, i);
    if (in.mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(in.mask, i), value);
    hn::StoreU(value, kF32, out + i);
  }
  if (whole == count) return;
  const size_t left = count - whole;
  LastVector<ElementOf<kType>> g;
  LastVector<float> m;
  MomentumInput last = in;
  last.g = g.Take(in.g, whole, left);
  last.m = m.Take(in.m, whole, left);
  VF value = MomentumAt<kType>(last, 0);
  if (in.mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(in.mask, whole), value);
  hn::Store(value, kF32, m.element);
  m.Return(out, whole, left);
}

template <DataType kType>
void WriteAs(const MomentumInput& in, size_t count, float* out) {
  TileBits mask_bits;
  for (size_t begin = 0; begin < count; begin += kTile) {
    const size_t tile_count = std::min(kTile, count - begin);
    MomentumInput tile = in;
    tile.g = static_cast<const ElementOf<kType>*>(in.g) + begin;
    tile.m = in.m + begin;
    if (in.mask != nullptr) {
      CopyBitsPadded(in.mask + begin / 8, tile_count, mask_bits.bytes);
      tile.mask = mask_bits.bytes;
    }
    WriteTile<kType>(tile, tile_count, out + begin);
  }
}

void Write(const MomentumInput& in, DataType type, size_t count, float* out) {
  switch (type) {
    case DataType::kF32:
      return WriteAs<DataType::kF32>(in, count, out);
    case DataType::kF16:
      return WriteAs<DataType::kF16>(in, count, out);
    case DataType::kBf16:
      return WriteAs<DataType::kBf16>(in, count, out);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

}  // namespace

void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  Write({.g = g,
         .m = m,
         .mask = mask,
         .g_scale = g_scale,
         .beta1 = beta1,
         .one_minus_beta1 = one_minus_beta1},
        g_type, count, out);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(LocalMomentum);

void LocalMomentum(const float* m, const void* g, DataType g_type, float g_scale, float beta1,
                   float one_minus_beta1, const uint8_t* mask, size_t count, float* out) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(LocalMomentum)
  (m, g, g_type, g_scale, beta1, one_minus_beta1, mask, count, out);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
