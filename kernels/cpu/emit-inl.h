// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The second sweep over a tile: signs and residuals from the cached z. Per-target header.
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

// What the second sweep of a tile writes.
struct TileOutput {
  const float* z;       // padded as LoadTile does
  const uint8_t* mask;  // padded, or null
  size_t count;
  float scale;
  uint8_t* bits;   // BitBytes(count) bytes, unaligned; or null
  void* residual;  // or null
};

using EmitTile = void (*)(const TileOutput& tile);

// All bits of the padded tile.
HWY_INLINE void EmitSigns(const float* z, size_t count, uint8_t* padded) {
  for (size_t group = 0; group < count; group += kGroup) {
    HWY_DEFAULT_UNROLL
    for (size_t i = group; i < group + kGroup; i += kLanes) {
      StoreBitsOf(hn::Lt(hn::Load(kF32, z + i), hn::Zero(kF32)), i, padded);
    }
  }
}

template <bool kMasked>
HWY_INLINE VF LostAt(const TileOutput& tile, VF z, MF is_negative, VF scale, VF negative_scale,
                     size_t i) {
  const VF lost = hn::Sub(z, hn::IfThenElse(is_negative, negative_scale, scale));
  if constexpr (kMasked) return hn::IfThenElseZero(MaskOfBits(tile.mask, i), lost);
  (void)tile;
  (void)i;
  return lost;
}

template <Residual kResidual, bool kMasked, bool kBits, bool kStream>
HWY_NOINLINE void EmitTileAs(const TileOutput& tile) {
  constexpr DataType kType = kResidualType<kResidual>;
  const VF scale = hn::Set(kF32, tile.scale);
  const VF negative_scale = hn::Neg(scale);
  TileBits bits;
  size_t i = 0;
  for (; i + kGroup <= tile.count; i += kGroup) {
    HWY_DEFAULT_UNROLL
    for (size_t j = i; j < i + kGroup; j += kLanes) {
      const VF z = hn::Load(kF32, tile.z + j);
      const MF is_negative = hn::Lt(z, hn::Zero(kF32));
      if constexpr (kBits) StoreBitsOf(is_negative, j, bits.bytes);
      const VF lost = LostAt<kMasked>(tile, z, is_negative, scale, negative_scale, j);
      StoreF32As<kType, kStream>(lost, tile.residual, j);
    }
  }
  if (i < tile.count) {
    alignas(64) ElementOf<kType> last[kGroup];
    for (size_t j = i; j < i + kGroup; j += kLanes) {
      const VF z = hn::Load(kF32, tile.z + j);
      const MF is_negative = hn::Lt(z, hn::Zero(kF32));
      if constexpr (kBits) StoreBitsOf(is_negative, j, bits.bytes);
      const VF lost = LostAt<kMasked>(tile, z, is_negative, scale, negative_scale, j);
      StoreF32As<kType>(lost, last, j - i);
    }
    memcpy(static_cast<ElementOf<kType>*>(tile.residual) + i, last,
           (tile.count - i) * sizeof(last[0]));
  }
  if constexpr (kBits) memcpy(tile.bits, bits.bytes, BitBytes(tile.count));
}

inline HWY_NOINLINE void EmitSignsOnly(const TileOutput& tile) {
  TileBits bits;
  EmitSigns(tile.z, tile.count, bits.bytes);
  memcpy(tile.bits, bits.bytes, BitBytes(tile.count));
}

// ---- Choice of the instance, once per call

template <Residual kResidual, bool kMasked>
EmitTile ChooseEmit(bool with_bits, bool is_streamed) {
  if (with_bits) {
    return is_streamed ? &EmitTileAs<kResidual, kMasked, true, true>
                       : &EmitTileAs<kResidual, kMasked, true, false>;
  }
  return is_streamed ? &EmitTileAs<kResidual, kMasked, false, true>
                     : &EmitTileAs<kResidual, kMasked, false, false>;
}

// Signs and residual, or only one of them; kNone with signs only.
inline EmitTile ChooseEmitTile(Residual residual, bool is_masked, bool with_bits,
                               bool is_streamed) {
  switch (residual) {
    case Residual::kNone:
      return &EmitSignsOnly;
    case Residual::kF32:
      return is_masked ? ChooseEmit<Residual::kF32, true>(with_bits, is_streamed)
                       : ChooseEmit<Residual::kF32, false>(with_bits, is_streamed);
    case Residual::kBf16:
      return is_masked ? ChooseEmit<Residual::kBf16, true>(with_bits, is_streamed)
                       : ChooseEmit<Residual::kBf16, false>(with_bits, is_streamed);
  }
  return nullptr;
}

// ---- Streaming stores

// From this size on an output is assumed not to be read again before it would have left the caches.
inline constexpr size_t kStreamBytes = size_t{4} << 20;

inline bool ShouldStream(const void* output, size_t bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<uintptr_t>(output) % 64 == 0;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
