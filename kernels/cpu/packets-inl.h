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
// the partial sums stay in the tile.
inline constexpr size_t kMaxGroupRanks = 8;

struct RankGroup {
  const uint8_t* bits[kMaxGroupRanks];  // first bit of the tile; kBitPadding bytes readable
  float weight[kMaxGroupRanks];
};

using D8 = hn::ScalableTag<uint8_t>;
inline constexpr D8 k8{};
inline constexpr size_t kLanes8 = hn::MaxLanes(D8());

// Numbers for elements i, i + 1, ... whose bit k is the sign bit of rank k.
template <size_t kRanks>
HWY_INLINE hn::Vec<D8> SignPatterns(const uint8_t* const* bits, size_t i) {
  auto pattern = hn::Zero(k8);
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) {
    const auto bit = hn::Set(k8, static_cast<uint8_t>(1u << k));
    pattern = hn::Or(pattern, hn::IfThenElseZero(MaskOfBits(k8, bits[k], i), bit));
  }
  return pattern;
}

// Sign patterns select from tables. The first ranks share a table with their sum for every pattern
// of their signs, computed in rank order; each later rank selects its +-w. That takes half the
// instructions of selecting every rank's weight by a mask.
inline constexpr bool kHasTables = kLanes >= 8;
inline constexpr size_t kTableBits = kLanes == 16 ? 4 : 3;  // one vector
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t kSumTableBits = 5;  // two vectors
#else
inline constexpr size_t kSumTableBits = kTableBits;
#endif

template <size_t kRanks, bool kIsFirst>
class RankTables {
 public:
  explicit RankTables(const RankGroup& group) {
    const VU32 lane = hn::Iota(kU32, 0);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kRanks; ++k) {
      const size_t bit_of_index = k < kSummed ? k : (k - kSummed) % kTableBits;
      const VU32 bit = hn::Set(kU32, 1u << bit_of_index);
      const MF is_negative = hn::RebindMask(kF32, hn::Eq(hn::And(lane, bit), bit));
      const VF weight = hn::Set(kF32, group.weight[k]);
      weight_[k] = hn::IfThenElse(is_negative, hn::Neg(weight), weight);
    }
    low_sums_ = high_sums_ = weight_[0];
    HWY_UNROLL(8)
    for (size_t k = 1; k < kSummed && k < kTableBits; ++k)
      low_sums_ = hn::Add(low_sums_, weight_[k]);
    if constexpr (kSummed > kTableBits) {
      // A vector's lanes do not cover the bit of this rank, so the bit selects the vector; the
      // lanes here are all +w.
      high_sums_ = hn::Sub(low_sums_, weight_[kTableBits]);
      low_sums_ = hn::Add(low_sums_, weight_[kTableBits]);
    }
  }

  // Adds +- every rank's weight in order, to `sum` unless this is the first group.
  HWY_INLINE VF Add(VF sum, VU32 pattern) const {
    if constexpr (kSummed > kTableBits) {
#if HWY_TARGET == HWY_AVX3
      // Uses only the lowest five bits; Highway 1.0.3 has no function for it.
      sum = VF{_mm512_permutex2var_ps(low_sums_.raw, pattern.raw, high_sums_.raw)};
#endif
    } else if constexpr (kSummed > 0) {
      sum = hn::TableLookupLanes(low_sums_, IndexAt<0>(pattern));
    }
    return AddWeights<kSummed>(sum, pattern);
  }

 private:
  static constexpr size_t kSummed = !kIsFirst ? 0 : HWY_MIN(kRanks, kSumTableBits);

  // Returns kTableBits bits of the pattern, from kBit on.
  template <size_t kBit>
  static HWY_INLINE auto IndexAt(VU32 pattern) {
    if constexpr (kBit != 0) pattern = hn::ShiftRight<static_cast<int>(kBit)>(pattern);
    if constexpr (kRanks - kBit > kTableBits) {
      pattern = hn::And(pattern, hn::Set(kU32, kLanes - 1));
    }
    return hn::IndicesFromVec(kF32, pattern);
  }

  template <size_t kBegin>
  HWY_INLINE VF AddWeights(VF sum, VU32 pattern) const {
    if constexpr (kBegin >= kRanks) {
      return sum;
    } else {
      const auto index = IndexAt<kBegin>(pattern);
      HWY_UNROLL(8)
      for (size_t k = kBegin; k < kRanks && k < kBegin + kTableBits; ++k) {
        sum = hn::Add(sum, hn::TableLookupLanes(weight_[k], index));
      }
      return AddWeights<kBegin + kTableBits>(sum, pattern);
    }
  }

  VF weight_[kRanks];
  VF low_sums_;
  VF high_sums_;
};

// to[i] = from[i] +- w_0 +- w_1 ... for whole vectors up to `count`; without `from` if kIsFirst.
template <size_t kRanks, bool kIsFirst, bool kStream>
HWY_INLINE void AddPatterns(const RankTables<kRanks, kIsFirst>& tables, const uint8_t* patterns,
                            size_t count, const float* from, float* to) {
  HWY_DEFAULT_UNROLL
  for (size_t i = 0; i < count; i += kLanes) {
    const VU32 pattern = hn::PromoteTo(kU32, hn::Load(hn::Rebind<uint8_t, DF>(), patterns + i));
    const VF before = kIsFirst ? hn::Zero(kF32) : hn::Load(kF32, from + i);
    StoreF32As<DataType::kF32, kStream>(tables.Add(before, pattern), to, i);
  }
}

template <size_t kRanks, bool kIsFirst, bool kStream>
HWY_INLINE void AddRanksByTable(const RankGroup& group, size_t count, const float* from,
                                float* to) {
  const RankTables<kRanks, kIsFirst> tables(group);
  const uint8_t* bits[kRanks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) bits[k] = group.bits[k];
  alignas(64) uint8_t patterns[kLanes8];
  size_t i = 0;
  for (; i + kLanes8 <= count; i += kLanes8) {
    hn::Store(SignPatterns<kRanks>(bits, i), k8, patterns);
    AddPatterns<kRanks, kIsFirst, kStream>(tables, patterns, kLanes8, from + i, to + i);
  }
  if (i == count) return;
  hn::Store(SignPatterns<kRanks>(bits, i), k8, patterns);
  AddPatterns<kRanks, kIsFirst, kStream>(tables, patterns, count - i, from + i, to + i);
}

template <size_t kRanks, bool kIsFirst, bool kStream>
HWY_INLINE void AddRanksByMask(const RankGroup& group, size_t count, const float* from, float* to) {
  VF weight[kRanks];
  const uint8_t* bits[kRanks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) {
    weight[k] = hn::Set(kF32, group.weight[k]);
    bits[k] = group.bits[k];
  }
  for (size_t i = 0; i < count; i += kLanes) {
    VF sum = kIsFirst ? hn::Zero(kF32) : hn::Load(kF32, from + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kRanks; ++k) {
      const VF term = hn::IfThenElse(MaskOfBits(bits[k], i), hn::Neg(weight[k]), weight[k]);
      sum = kIsFirst && k == 0 ? term : hn::Add(sum, term);
    }
    StoreF32As<DataType::kF32, kStream>(sum, to, i);
  }
}

template <size_t kRanks, bool kIsFirst, bool kStream>
HWY_NOINLINE void AddRanks(const RankGroup& group, size_t count, const float* from, float* to) {
  if constexpr (kHasTables && kRanks >= 4) {
    AddRanksByTable<kRanks, kIsFirst, kStream>(group, count, from, to);
  } else {
    AddRanksByMask<kRanks, kIsFirst, kStream>(group, count, from, to);
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

// The last group may write to memory other than the tile.
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

// The packets of all ranks for one piece.
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

// The destination of a tile's sums.
struct SumTarget {
  float* to;         // written in whole vectors: up to kLanes - 1 elements beyond count
  bool is_streamed;  // bypasses the caches; needs 64-byte alignment
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
