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

#if HWY_TARGET == HWY_AVX2
// Exchanges bits of `x` that a mask selects with those `kDistance` above.
template <int kDistance>
HWY_INLINE __m256i SwapBits(__m256i x, uint64_t mask) {
  const __m256i differs = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, kDistance)),
                                           _mm256_set1_epi64x(static_cast<int64_t>(mask)));
  return _mm256_xor_si256(x, _mm256_xor_si256(differs, _mm256_slli_epi64(differs, kDistance)));
}

// Bit j of byte k becomes bit k of byte j, in each eight bytes.
HWY_INLINE __m256i TransposeBits(__m256i x) {
  x = SwapBits<7>(x, 0x00AA00AA00AA00AAu);
  x = SwapBits<14>(x, 0x0000CCCC0000CCCCu);
  return SwapBits<28>(x, 0x00000000F0F0F0F0u);
}
#endif

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
// Bits of an index into the +-w of one rank. Looking up within 128 bits takes less time than across
// a vector of 256.
inline constexpr size_t kWeightBits = HWY_TARGET == HWY_AVX2 ? 2 : kTableBits;

#if HWY_TARGET == HWY_AVX2
// Elements whose patterns of eight ranks are made at once.
inline constexpr size_t kPatternRow = 256;

// Writes the numbers for elements i ... i + kPatternRow - 1, in less than half the instructions of
// SignPatterns: gathers the ranks' bytes of the same elements, and transposes them bit by bit.
HWY_INLINE void PatternsOfEight(const uint8_t* const* bits, size_t i, uint8_t* patterns) {
  __m256i row[8];
  HWY_UNROLL(8)
  for (size_t k = 0; k < 8; ++k) {
    row[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits[k] + i / 8));
  }
  __m256i pair[8];  // of ranks 0 and 1, lower and upper bytes, of 2 and 3, ...
  HWY_UNROLL(4)
  for (size_t k = 0; k < 8; k += 2) {
    pair[k] = _mm256_unpacklo_epi8(row[k], row[k + 1]);
    pair[k + 1] = _mm256_unpackhi_epi8(row[k], row[k + 1]);
  }
  HWY_UNROLL(2)
  for (size_t half = 0; half < 2; ++half) {
    const __m256i fours[4] = {_mm256_unpacklo_epi16(pair[half], pair[half + 2]),
                              _mm256_unpackhi_epi16(pair[half], pair[half + 2]),
                              _mm256_unpacklo_epi16(pair[half + 4], pair[half + 6]),
                              _mm256_unpackhi_epi16(pair[half + 4], pair[half + 6])};
    HWY_UNROLL(2)
    for (size_t quarter = 0; quarter < 2; ++quarter) {
      const __m256i eights[2] = {_mm256_unpacklo_epi32(fours[quarter], fours[quarter + 2]),
                                 _mm256_unpackhi_epi32(fours[quarter], fours[quarter + 2])};
      HWY_UNROLL(2)
      for (size_t k = 0; k < 2; ++k) {
        // Bytes 8 * half + 4 * quarter + 2 * k and the next one of each 128 bits of the rows.
        const __m256i in_place = TransposeBits(eights[k]);
        uint8_t* to = patterns + 64 * half + 32 * quarter + 16 * k;
        _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(in_place));
        _mm_store_si128(reinterpret_cast<__m128i*>(to + 128),
                        _mm256_extracti128_si256(in_place, 1));
      }
    }
  }
}
#endif

template <size_t kRanks, bool kIsFirst>
class RankTables {
 public:
  explicit RankTables(const RankGroup& group) {
    const VU32 lane = hn::Iota(kU32, 0);
    HWY_UNROLL(8)
    for (size_t k = 0; k < kRanks; ++k) {
      const size_t bit_of_index = k < kSummed ? k : (k - kSummed) % kWeightBits;
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
      sum = LookUp(low_sums_, pattern);
    }
    return AddWeights<kSummed>(sum, pattern);
  }

 private:
  static constexpr size_t kSummed = !kIsFirst ? 0 : HWY_MIN(kRanks, kSumTableBits);

  // Only the lowest kTableBits of the pattern matter.
  static HWY_INLINE VF LookUp(VF table, VU32 pattern) {
#if HWY_TARGET == HWY_AVX2
    return VF{_mm256_permutevar8x32_ps(table.raw, pattern.raw)};
#elif HWY_TARGET == HWY_AVX3
    return VF{_mm512_permutexvar_ps(pattern.raw, table.raw)};
#else
    pattern = hn::And(pattern, hn::Set(kU32, kLanes - 1));
    return hn::TableLookupLanes(table, hn::IndicesFromVec(kF32, pattern));
#endif
  }
  // The same with kWeightBits.
  static HWY_INLINE VF LookUpWeight(VF table, VU32 pattern) {
#if HWY_TARGET == HWY_AVX2
    return VF{_mm256_permutevar_ps(table.raw, pattern.raw)};
#else
    return LookUp(table, pattern);
#endif
  }

  template <size_t kBegin>
  HWY_INLINE VF AddWeights(VF sum, VU32 pattern) const {
    if constexpr (kBegin >= kRanks) {
      return sum;
    } else {
      const VU32 index = hn::ShiftRight<static_cast<int>(kBegin)>(pattern);
      HWY_UNROLL(8)
      for (size_t k = kBegin; k < kRanks && k < kBegin + kWeightBits; ++k) {
        sum = hn::Add(sum, LookUpWeight(weight_[k], index));
      }
      return AddWeights<kBegin + kWeightBits>(sum, pattern);
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
  size_t i = 0;
#if HWY_TARGET == HWY_AVX2
  if constexpr (kRanks == 8) {
    alignas(64) uint8_t row[kPatternRow];
    for (; i + kPatternRow <= count; i += kPatternRow) {
      PatternsOfEight(bits, i, row);
      AddPatterns<kRanks, kIsFirst, kStream>(tables, row, kPatternRow, from + i, to + i);
    }
  }
#endif
  alignas(64) uint8_t patterns[kLanes8];
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
