// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums of decoded packets, one tile at a time. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_PACKETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_PACKETS_INL_H_
#undef ONEBIT_KERNELS_CPU_PACKETS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_PACKETS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Ranks are added in groups of at most this many, whose weights stay in registers; between groups
// the partial sums wait in the tile.
inline constexpr size_t kMaxGroupRanks = 8;

struct RankGroup {
  const uint8_t* bits[kMaxGroupRanks];  // first bit of the tile; kBitPadding bytes readable
  float weight[kMaxGroupRanks];
};

// to[i] = from[i] + -w_0 + -w_1 ... for whole vectors up to `count`; without `from` if kIsFirst.
template <size_t kRanks, bool kIsFirst, bool kStream>
HWY_NOINLINE void AddRanks(const RankGroup& group, size_t count, const float* from, float* to) {
  VF weight[kRanks];
  const uint8_t* bits[kRanks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) {
    weight[k] = hn::Set(kF32, group.weight[k]);
    bits[k] = group.bits[k];
  }
  for (size_t i = 0; i < count; i += kLanes) {
    VF sum;
    size_t k = 0;
    if constexpr (kIsFirst) {
      sum = hn::IfThenElse(MaskOfBits(bits[0], i), hn::Neg(weight[0]), weight[0]);
      k = 1;
    } else {
      sum = hn::Load(kF32, from + i);
    }
    HWY_UNROLL(8)
    for (; k < kRanks; ++k) {
      const MF is_negative = MaskOfBits(bits[k], i);
      sum = hn::IfThenElse(is_negative, hn::Sub(sum, weight[k]), hn::Add(sum, weight[k]));
    }
    StoreF32As<DataType::kF32, kStream>(sum, to, i);
  }
}

template <size_t kRanks, bool kStream>
HWY_INLINE void AddGroup(const RankGroup& group, bool is_first, size_t count, const float* from,
                         float* to) {
  if (is_first) {
    AddRanks<kRanks, true, kStream>(group, count, from, to);
  } else {
    AddRanks<kRanks, false, kStream>(group, count, from, to);
  }
}

// The last group may write somewhere else than the tile.
template <bool kStream>
HWY_INLINE void AddGroupOf(size_t ranks, const RankGroup& group, bool is_first, size_t count,
                           const float* from, float* to) {
  switch (ranks) {
    case 8:
      return AddGroup<8, kStream>(group, is_first, count, from, to);
    case 4:
      return AddGroup<4, kStream>(group, is_first, count, from, to);
    case 2:
      return AddGroup<2, kStream>(group, is_first, count, from, to);
    default:
      return AddGroup<1, kStream>(group, is_first, count, from, to);
  }
}

// Packets of all ranks for one piece.
struct Packets {
  const uint8_t* const* bits;
  const float* const* scales;
  size_t ranks;
  size_t count;   // elements of the piece
  float divisor;  // a rank's weight is its scale / divisor
};

HWY_INLINE Packets PacketsOf(const ReduceInput& in) {
  return {in.bits, in.scales, in.ranks, in.count, static_cast<float>(in.ranks)};
}

// Where the sums of a tile go.
struct SumTarget {
  float* to;         // whole vectors are written, so that up to kLanes - 1 elements follow count
  bool is_streamed;  // past the caches; needs alignment to 64 bytes
};

// Adds the packets in rank order for elements [begin, begin + count) of the piece, count <= kTile,
// all under scale number `scale_index`. `tile` holds partial sums.
HWY_INLINE void SumPackets(const Packets& packets, size_t begin, size_t count, size_t scale_index,
                           float* tile, SumTarget target) {
  TileBits copies[kMaxGroupRanks];
  const bool is_padded = HasBitPadding(begin + count, packets.count);
  for (size_t first = 0; first < packets.ranks;) {
    const size_t left = packets.ranks - first;
    const size_t ranks = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    RankGroup group;
    for (size_t k = 0; k < ranks; ++k) {
      const uint8_t* bits = packets.bits[first + k] + begin / 8;
      if (!is_padded) {
        CopyBitsPadded(bits, count, copies[k].bytes);
        bits = copies[k].bytes;
      }
      group.bits[k] = bits;
      group.weight[k] = packets.scales[first + k][scale_index] / packets.divisor;
    }
    const bool is_first = first == 0;
    first += ranks;
    if (first < packets.ranks) {
      AddGroupOf<false>(ranks, group, is_first, count, tile, tile);
    } else if (target.is_streamed) {
      AddGroupOf<true>(ranks, group, is_first, count, tile, target.to);
    } else {
      AddGroupOf<false>(ranks, group, is_first, count, tile, target.to);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
