// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A tile is the part of a block that fits the first-level cache as z. The first sweep over a tile
// forms z and adds to the sums, the second one (emit-inl.h) writes signs and residuals from the
// cached z, so that a block costs one pass over memory. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_TILE_INL_H_
#undef ONEBIT_KERNELS_CPU_TILE_INL_H_
#else
#define ONEBIT_KERNELS_CPU_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

inline constexpr size_t kTile = 4096;
static_assert(kTile % kSumLanes == 0 && kTile == kTensorSumBlock);

// Bits are handled 64 at a time and z is padded accordingly.
inline constexpr size_t kGroup = 64;
static_assert(kGroup == kBlockMultiple);

constexpr size_t RoundUpToGroup(size_t count) { return (count + kGroup - 1) / kGroup * kGroup; }

struct alignas(64) TileBits {
  uint8_t bytes[kTile / 8 + kBitPadding];
};

struct alignas(64) SumLanes {
  float lane[kSumLanes];
};

// Where the z of a tile come from.
struct TileInput {
  const void* input;
  const void* residual;  // or null
  const uint8_t* mask;   // padded, bits from `count` on clear; or null
  size_t count;          // at most kTile
};

// Writes z[0, RoundUpToGroup(count)), 0 beyond count; adds to lanes. z may equal input.
using LoadTile = void (*)(const TileInput& tile, float* HWY_RESTRICT lanes, float* z);

enum class Residual { kNone, kF32, kBf16 };
enum class Sum { kNone, kL1, kL2 };

template <Residual kResidual>
inline constexpr DataType kResidualType =
    kResidual == Residual::kBf16 ? DataType::kBf16 : DataType::kF32;

template <Sum kSum>
HWY_INLINE VF AddTerm(VF sum, VF z) {
  if constexpr (kSum == Sum::kNone) return sum;
  return hn::Add(sum, kSum == Sum::kL2 ? hn::Mul(z, z) : hn::Abs(z));
}

template <DataType kInput, Residual kResidual, bool kMasked>
HWY_INLINE VF LoadZ(const TileInput& tile, size_t i) {
  VF z = LoadF32<kInput>(tile.input, i);
  if constexpr (kResidual != Residual::kNone) {
    z = hn::Add(z, LoadF32<kResidualType<kResidual>>(tile.residual, i));
  }
  if constexpr (kMasked) z = hn::IfThenElseZero(MaskOfBits(tile.mask, i), z);
  return z;
}

// The last, partial vector: from copies padded with zeros.
template <DataType kInput, Residual kResidual, bool kMasked>
HWY_INLINE VF LoadLastZ(const TileInput& tile, size_t i) {
  using Input = ElementOf<kInput>;
  using Kept = ElementOf<kResidualType<kResidual>>;
  alignas(64) Input input[kLanes] = {};
  alignas(64) Kept residual[kLanes] = {};
  const size_t valid = tile.count - i;
  memcpy(input, static_cast<const Input*>(tile.input) + i, valid * sizeof(Input));
  if constexpr (kResidual != Residual::kNone) {
    memcpy(residual, static_cast<const Kept*>(tile.residual) + i, valid * sizeof(Kept));
  }
  const TileInput rest = {.input = input, .residual = residual, .mask = nullptr, .count = kLanes};
  VF z = LoadZ<kInput, kResidual, false>(rest, 0);
  if constexpr (kMasked) z = hn::IfThenElseZero(MaskOfBits(tile.mask, i), z);
  return z;
}

// Eight accumulators hide the latency of the addition and fit every register file; where they do
// not hold all lanes, rows of kSumLanes elements are walked once per group of columns.
template <DataType kInput, Residual kResidual, bool kMasked, Sum kSum>
HWY_NOINLINE void LoadTileAs(const TileInput& tile, float* HWY_RESTRICT lanes, float* z) {
  constexpr size_t kUnroll = 8;
  constexpr size_t kColumns = kUnroll * kLanes;
  static_assert(kSumLanes % kColumns == 0);
  const size_t row_end = tile.count / kSumLanes * kSumLanes;
  for (size_t column = 0; column < kSumLanes; column += kColumns) {
    VF sum[kUnroll];
    HWY_UNROLL(8)
    for (size_t k = 0; k < kUnroll; ++k) {
      sum[k] = kSum == Sum::kNone ? hn::Zero(kF32) : hn::Load(kF32, lanes + column + k * kLanes);
    }
    for (size_t i = column; i < row_end; i += kSumLanes) {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kUnroll; ++k) {
        const VF loaded = LoadZ<kInput, kResidual, kMasked>(tile, i + k * kLanes);
        hn::Store(loaded, kF32, z + i + k * kLanes);
        sum[k] = AddTerm<kSum>(sum[k], loaded);
      }
    }
    if constexpr (kSum != Sum::kNone) {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kUnroll; ++k) {
        hn::Store(sum[k], kF32, lanes + column + k * kLanes);
      }
    }
  }
  // The last row.
  for (size_t i = row_end; i < tile.count; i += kLanes) {
    const bool is_whole = i + kLanes <= tile.count;
    const VF loaded = is_whole ? LoadZ<kInput, kResidual, kMasked>(tile, i)
                               : LoadLastZ<kInput, kResidual, kMasked>(tile, i);
    hn::Store(loaded, kF32, z + i);
    if constexpr (kSum != Sum::kNone) {
      float* lane = lanes + (i - row_end);
      hn::Store(AddTerm<kSum>(hn::Load(kF32, lane), loaded), kF32, lane);
    }
  }
  for (size_t i = (tile.count + kLanes - 1) / kLanes * kLanes; i < RoundUpToGroup(tile.count);
       i += kLanes) {
    hn::Store(hn::Zero(kF32), kF32, z + i);
  }
}

// ---- Choice of the instance, once per call

template <DataType kInput, Residual kResidual, bool kMasked>
LoadTile ChooseSum(Sum sum) {
  switch (sum) {
    case Sum::kNone:
      return &LoadTileAs<kInput, kResidual, kMasked, Sum::kNone>;
    case Sum::kL1:
      return &LoadTileAs<kInput, kResidual, kMasked, Sum::kL1>;
    case Sum::kL2:
      return &LoadTileAs<kInput, kResidual, kMasked, Sum::kL2>;
  }
  return nullptr;
}

template <DataType kInput, bool kMasked>
LoadTile ChooseResidual(Residual residual, Sum sum) {
  switch (residual) {
    case Residual::kNone:
      return ChooseSum<kInput, Residual::kNone, kMasked>(sum);
    case Residual::kF32:
      return ChooseSum<kInput, Residual::kF32, kMasked>(sum);
    case Residual::kBf16:
      return ChooseSum<kInput, Residual::kBf16, kMasked>(sum);
  }
  return nullptr;
}

template <bool kMasked>
LoadTile ChooseInput(DataType input, Residual residual, Sum sum) {
  switch (input) {
    case DataType::kF32:
      return ChooseResidual<DataType::kF32, kMasked>(residual, sum);
    case DataType::kF16:
      return ChooseResidual<DataType::kF16, kMasked>(residual, sum);
    case DataType::kBf16:
      return ChooseResidual<DataType::kBf16, kMasked>(residual, sum);
  }
  return nullptr;
}

inline LoadTile ChooseLoadTile(DataType input, Residual residual, bool is_masked, Sum sum) {
  return is_masked ? ChooseInput<true>(input, residual, sum)
                   : ChooseInput<false>(input, residual, sum);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
