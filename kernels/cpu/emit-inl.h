// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writes the residuals of a tile whose z is cached. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_EMIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_EMIT_INL_H_
#undef ONEBIT_KERNELS_CPU_EMIT_INL_H_
#else
#define ONEBIT_KERNELS_CPU_EMIT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

using EmitTile = void (*)(const TileOutput& tile, const float* z);

template <Residual kResidual, bool kMasked, bool kStream>
HWY_NOINLINE void EmitTileAs(const TileOutput& tile, const float* z) {
  const VF scale = hn::Set(kF32, tile.scale);
  const size_t whole = tile.count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    WriteLoss<kResidual, kMasked, kStream>(hn::Load(kF32, z + i), scale, tile, i);
  }
  if (whole == tile.count) return;
  alignas(64) ElementOf<kResidualType<kResidual>> last[kLanes];
  VF loss = hn::Load(kF32, z + whole);
  loss = hn::Sub(loss, hn::IfThenElse(IsNegative(loss), hn::Neg(scale), scale));
  if constexpr (kMasked) loss = hn::IfThenElseZero(MaskOfBits(tile.mask, whole), loss);
  StoreF32As<kResidualType<kResidual>>(loss, last, 0);
  memcpy(static_cast<ElementOf<kResidualType<kResidual>>*>(tile.residual) + whole, last,
         (tile.count - whole) * sizeof(last[0]));
}

template <Residual kResidual>
EmitTile ChooseEmit(bool is_masked, bool is_streamed) {
  if (is_masked) {
    return is_streamed ? &EmitTileAs<kResidual, true, true> : &EmitTileAs<kResidual, true, false>;
  }
  return is_streamed ? &EmitTileAs<kResidual, false, true> : &EmitTileAs<kResidual, false, false>;
}

// Returns null without a residual.
inline EmitTile ChooseEmitTile(Residual residual, bool is_masked, bool is_streamed) {
  switch (residual) {
    case Residual::kNone:
      return nullptr;
    case Residual::kF32:
      return ChooseEmit<Residual::kF32>(is_masked, is_streamed);
    case Residual::kBf16:
      return ChooseEmit<Residual::kBf16>(is_masked, is_streamed);
  }
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
