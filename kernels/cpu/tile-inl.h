// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A tile is the part of a block whose z fits the first-level cache. A sweep over a tile computes z,
// adds to the sums and writes the signs. A block's residual can only be written when its scale is
// known: by a second sweep over the cached z (emit-inl.h) or, with no additional pass, during the
// sweep over the next block. Per-target header.
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

struct alignas(64) TileBits {
  uint8_t bytes[kTile / 8 + kBitPadding];
};

struct alignas(64) SumLanes {
  float lane[kSumLanes];

  // Stores vectors, because compilers turn an initialisation of this size into slow string
  // instructions.
  HWY_INLINE void Clear() {
    for (size_t i = 0; i < kSumLanes; i += kLanes) hn::Store(hn::Zero(kF32), kF32, lane + i);
  }
};

// The inputs of a tile's z.
struct TileInput {
  const void* input;
  const void* residual;  // or null
  const uint8_t* mask;   // padded, bits from `count` on are clear; or null
  size_t count;          // at most kTile
};

// The destination of a tile's residual, which is z - scale * sign(z), 0 where masked.
struct TileOutput {
  void* residual;
  const uint8_t* mask;  // padded, or null
  size_t count;
  float scale;
  TileInput again = {};  // of a sweep that computes z again
};

// A sweep over a tile. If it sums, it adds to `lanes` and writes the signs as BitBytes(count) bytes
// of `bits`. `before` is a tile of the previous block; both counts are then the same multiple of
// kSumLanes, and the residual is aligned to 64 bytes.
using LoadTile = void (*)(const TileInput& tile, float* z, float* lanes, uint8_t* bits,
                          const TileOutput* before);

enum class Residual { kNone, kF32, kBf16 };
enum class Sum { kNone, kL1, kL2 };

// A sweep sums, and may do one thing more.
enum class Sweep {
  kSum,     // nothing
  kKeep,    // writes z[0, count), with zeros up to a whole vector
  kSwap,    // the same, and writes the residual of `before`, whose z is overwritten
  kReread,  // writes the residual of `before`, whose z is computed again
};

template <Residual kResidual>
inline constexpr DataType kResidualType =
    kResidual == Residual::kBf16 ? DataType::kBf16 : DataType::kF32;

template <Sum kSum>
HWY_INLINE VF AddTerm(VF sum, VF z) {
  return hn::Add(sum, kSum == Sum::kL2 ? hn::Mul(z, z) : hn::Abs(z));
}

HWY_INLINE MF IsNegative(VF z) { return hn::Lt(z, hn::Zero(kF32)); }

template <DataType kInput, Residual kResidual, bool kMasked>
HWY_INLINE VF LoadZ(const TileInput& tile, size_t i) {
  VF z = LoadF32<kInput>(tile.input, i);
  if constexpr (kResidual != Residual::kNone) {
    z = hn::Add(z, LoadF32<kResidualType<kResidual>>(tile.residual, i));
  }
  if constexpr (kMasked) z = hn::IfThenElseZero(MaskOfBits(tile.mask, i), z);
  return z;
}

// Loads the last, partial vector from copies padded with zeros.
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

// ---- Memory order
//
// Measured on an EPYC 9005 (48 KiB first-level cache), reading x and e and writing e' of 64 Mi
// elements: a sweep with one load instruction per stream, lines of all streams alternating, and
// lines fetched 3 KiB ahead takes 5 to 12 % longer than a loop without arithmetic. With loads
// unrolled eight times it takes another 5 %, and with those of several vectors together another 10
// %; without fetching it takes half as long again. On an EPYC 9004, whose first-level cache has 32
// KiB, 2 KiB ahead is up to 8 % faster than 3 KiB.

inline constexpr size_t kFetchAheadBytes = 2048;
inline constexpr size_t kLineBytes = 64;

// A single stream is faster further ahead: codec_perf's Sign reaches 0.95 of its ceiling on the
// EPYC 9004, against 0.82 at 2 KiB.
inline constexpr size_t kFetchStreamAheadBytes = 8192;

// Fetches ahead of element i, once per line as i advances by vectors. The address may be beyond the
// array.
template <DataType kType, size_t kAheadBytes = kFetchAheadBytes>
HWY_INLINE void FetchAhead(const void* array, size_t i) {
  const size_t byte = i * sizeof(ElementOf<kType>);
  if (byte % kLineBytes == 0) {
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(array) + byte + kAheadBytes;
    hwy::Prefetch(reinterpret_cast<const char*>(ahead));
  }
}

// Keeps the compiler from grouping the loads or the fetches of several vectors; a fence of <atomic>
// does not order fetches.
HWY_INLINE void KeepOrder() { asm volatile("" : : : "memory"); }

// ---- The sweep

// Signs of 8 vectors, which fill whole bytes on every target.
struct RowSigns {
  uint64_t word[(8 * kLanes + 63) / 64] = {};

  HWY_INLINE void Set(size_t k, MF is_negative) {
    word[k * kLanes / 64] |= BitsOf(is_negative) << (k * kLanes % 64);
  }
  HWY_INLINE void Store(uint8_t* bits) const { memcpy(bits, word, kLanes); }
};

template <Residual kResidual, bool kMasked, bool kStream>
HWY_INLINE void WriteLoss(VF z, VF scale, const TileOutput& tile, size_t i) {
  VF loss = hn::Sub(z, hn::IfThenElse(IsNegative(z), hn::Neg(scale), scale));
  if constexpr (kMasked) loss = hn::IfThenElseZero(MaskOfBits(tile.mask, i), loss);
  StoreF32As<kResidualType<kResidual>, kStream>(loss, tile.residual, i);
}

// Whole rows of a tile that is likely to be in a cache. Eight accumulators hide the latency of the
// addition and fit every register file; if they cannot hold all lanes, rows of kSumLanes elements
// are read once per group of columns.
template <DataType kInput, Residual kResidual, bool kMasked, Sum kSum, Sweep kSweep>
HWY_INLINE void SweepRows(const TileInput& tile, size_t row_end, float* z, float* lanes,
                          uint8_t* bits) {
  constexpr size_t kUnroll = 8;
  constexpr size_t kColumns = kUnroll * kLanes;
  constexpr size_t kAhead = kResidual == Residual::kNone && kSweep == Sweep::kSum
                                ? kFetchStreamAheadBytes
                                : kFetchAheadBytes;
  static_assert(kSumLanes % kColumns == 0);
  for (size_t column = 0; column < kSumLanes; column += kColumns) {
    VF sum[kUnroll];
    HWY_UNROLL(8)
    for (size_t k = 0; k < kUnroll; ++k) {
      sum[k] = kSum == Sum::kNone ? hn::Zero(kF32) : hn::Load(kF32, lanes + column + k * kLanes);
    }
    for (size_t row = column; row < row_end; row += kSumLanes) {
      RowSigns signs;
      HWY_UNROLL(8)
      for (size_t k = 0; k < kUnroll; ++k) {
        const size_t i = row + k * kLanes;
        FetchAhead<kInput, kAhead>(tile.input, i);
        if (kResidual != Residual::kNone) FetchAhead<kResidualType<kResidual>>(tile.residual, i);
        const VF loaded = LoadZ<kInput, kResidual, kMasked>(tile, i);
        if constexpr (kSweep == Sweep::kKeep) hn::Store(loaded, kF32, z + i);
        if constexpr (kSum != Sum::kNone) {
          sum[k] = AddTerm<kSum>(sum[k], loaded);
          signs.Set(k, IsNegative(loaded));
        }
        KeepOrder();
      }
      if constexpr (kSum != Sum::kNone) signs.Store(bits + row / 8);
    }
    if constexpr (kSum != Sum::kNone) {
      HWY_UNROLL(8)
      for (size_t k = 0; k < kUnroll; ++k) {
        hn::Store(sum[k], kF32, lanes + column + k * kLanes);
      }
    }
  }
}

// Whole rows of a tile that comes from memory while a residual of the previous block is written.
// The wait for memory there leaves time to keep the sums in the first-level cache.
template <DataType kInput, Residual kResidual, bool kMasked, Sum kSum, Sweep kSweep>
HWY_INLINE void SwapRows(const TileInput& tile, size_t row_end, float* z, float* lanes,
                         uint8_t* bits, const TileOutput& before) {
  const VF before_scale = hn::Set(kF32, before.scale);
  HWY_UNROLL(1)
  for (size_t i = 0; i < row_end; i += kLanes) {
    FetchAhead<kInput>(tile.input, i);
    FetchAhead<kResidualType<kResidual>>(tile.residual, i);
    const VF loaded = LoadZ<kInput, kResidual, kMasked>(tile, i);
    VF leaving;
    if constexpr (kSweep == Sweep::kReread) {
      leaving = LoadZ<kInput, kResidual, kMasked>(before.again, i);
    } else {
      leaving = hn::Load(kF32, z + i);
      hn::Store(loaded, kF32, z + i);
    }
    float* lane = lanes + i % kSumLanes;
    hn::Store(AddTerm<kSum>(hn::Load(kF32, lane), loaded), kF32, lane);
    WriteBitsOf(IsNegative(loaded), i, bits);
    WriteLoss<kResidual, kMasked, true>(leaving, before_scale, before, i);
  }
}

template <DataType kInput, Residual kResidual, bool kMasked, Sum kSum, Sweep kSweep>
HWY_NOINLINE void LoadTileAs(const TileInput& tile_in_memory, float* z, float* lanes, uint8_t* bits,
                             const TileOutput* before) {
  const TileInput tile = tile_in_memory;  // stays in registers across KeepOrder()
  const size_t row_end = tile.count / kSumLanes * kSumLanes;
  if constexpr (kSweep == Sweep::kSwap || kSweep == Sweep::kReread) {
    SwapRows<kInput, kResidual, kMasked, kSum, kSweep>(tile, row_end, z, lanes, bits,
                                                       TileOutput(*before));
    return;
  }
  SweepRows<kInput, kResidual, kMasked, kSum, kSweep>(tile, row_end, z, lanes, bits);
  if (row_end == tile.count) return;
  // The last row.
  uint8_t last_bits[kSumLanes / 8];
  for (size_t i = row_end; i < tile.count; i += kLanes) {
    const bool is_whole = i + kLanes <= tile.count;
    const VF loaded = is_whole ? LoadZ<kInput, kResidual, kMasked>(tile, i)
                               : LoadLastZ<kInput, kResidual, kMasked>(tile, i);
    if constexpr (kSweep == Sweep::kKeep) hn::Store(loaded, kF32, z + i);
    if constexpr (kSum != Sum::kNone) {
      float* lane = lanes + (i - row_end);
      hn::Store(AddTerm<kSum>(hn::Load(kF32, lane), loaded), kF32, lane);
      WriteBitsOf(IsNegative(loaded), i - row_end, last_bits);
    }
  }
  if constexpr (kSum != Sum::kNone) {
    memcpy(bits + row_end / 8, last_bits, BitBytes(tile.count - row_end));
  }
}

// ---- Choice of the instances, once per call

struct TileSweeps {
  LoadTile load;  // keeps z, without a sum
  LoadTile sum;
  // Null without residual.
  LoadTile sum_and_keep;
  LoadTile sum_and_swap;
  LoadTile sum_and_reread;
};

template <DataType kInput, Residual kResidual, bool kMasked, Sum kSum>
TileSweeps SweepsOf() {
  TileSweeps sweeps = {
      .load = &LoadTileAs<kInput, kResidual, kMasked, Sum::kNone, Sweep::kKeep>,
      .sum = &LoadTileAs<kInput, kResidual, kMasked, kSum, Sweep::kSum>,
  };
  if constexpr (kResidual != Residual::kNone) {
    sweeps.sum_and_keep = &LoadTileAs<kInput, kResidual, kMasked, kSum, Sweep::kKeep>;
    sweeps.sum_and_swap = &LoadTileAs<kInput, kResidual, kMasked, kSum, Sweep::kSwap>;
    sweeps.sum_and_reread = &LoadTileAs<kInput, kResidual, kMasked, kSum, Sweep::kReread>;
  }
  return sweeps;
}

template <DataType kInput, Residual kResidual>
TileSweeps SweepsOf(bool is_masked, ScaleRule rule) {
  if (is_masked) {
    return rule == ScaleRule::kL2 ? SweepsOf<kInput, kResidual, true, Sum::kL2>()
                                  : SweepsOf<kInput, kResidual, true, Sum::kL1>();
  }
  return rule == ScaleRule::kL2 ? SweepsOf<kInput, kResidual, false, Sum::kL2>()
                                : SweepsOf<kInput, kResidual, false, Sum::kL1>();
}

template <DataType kInput>
TileSweeps SweepsOf(Residual residual, bool is_masked, ScaleRule rule) {
  switch (residual) {
    case Residual::kNone:
      return SweepsOf<kInput, Residual::kNone>(is_masked, rule);
    case Residual::kF32:
      return SweepsOf<kInput, Residual::kF32>(is_masked, rule);
    case Residual::kBf16:
      return SweepsOf<kInput, Residual::kBf16>(is_masked, rule);
  }
  return {};
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
