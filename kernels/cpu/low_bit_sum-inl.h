// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums of low-bit packets. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_SUM_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_SUM_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_SUM_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/low_bit_exact_sum-inl.h"
#include "kernels/cpu/low_bit_ranks-inl.h"
#include "kernels/cpu/low_bit_values-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/low_bit_scale.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Additions of a vector wait for each other, so several vectors are added at the same time.
inline constexpr size_t kVectorsAtOnce = 2;
// Vectors of codes may reach beyond the last code by this much.
inline constexpr size_t kCodePadding = 16;

HWY_INLINE float FloatOfBits(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

template <class RankDecoder>
concept AddsInFewerOperations = requires(RankDecoder decoder, VF sum, const uint8_t* codes) {
  decoder.AddTo(sum, codes, 0);
};

template <class RankDecoder>
HWY_INLINE VF AddValues(const RankDecoder& decoder, VF sum, const uint8_t* codes, size_t i) {
  if constexpr (AddsInFewerOperations<RankDecoder>) {
    return decoder.AddTo(sum, codes, i);
  } else {
    return hn::Add(sum, decoder.At(codes, i));
  }
}

// Adds whole vectors, the last of which may reach beyond the elements. Partial sums are in the
// decoder's order.
template <LowBitCodec kCodec, size_t kRanks, bool kIsFirst>
HWY_NOINLINE void AddLowBitRanks(const RanksAtOnce& ranks, const float* partial, float* to,
                                 const SumEnd& end_in_memory) {
  using RankDecoder = Decoder<kCodec>;
  const SumEnd end = end_in_memory;
  const size_t count = ranks.count, block = ranks.block;
  LowBitPacketView packet[kRanks];
  HWY_UNROLL(8)
  for (size_t k = 0; k < kRanks; ++k) {
    packet[k] = {
        .scales = ranks.Scales(k),
        .minimums = HasMinimum(kCodec) ? ranks.packets[k].minimums + ranks.first_block : nullptr,
        .codes = ranks.Codes(k)};
  }
  const VF factor = hn::Set(kF32, end.factor);
  for (size_t begin = 0, index = 0; begin < count; begin += block, ++index) {
    const size_t block_count = HWY_MIN(block, count - begin);
    RankDecoder decoder[kRanks];
    const uint8_t* codes[kRanks];
    HWY_UNROLL(8)
    for (size_t k = 0; k < kRanks; ++k) {
      const float minimum = HasMinimum(kCodec) ? FloatOfBits(packet[k].minimums[index]) : 0;
      decoder[k] = RankDecoder(FloatOfBits(packet[k].scales[index]), minimum);
      codes[k] = packet[k].codes + begin * CodeBits(kCodec) / 8;
    }
    // Elements i, i + 1, ...
    const auto add_vectors = [&]<size_t kVectors>(
                                 size_t i, std::integral_constant<size_t, kVectors>) HWY_ATTR {
      VF sum[kVectors];
      HWY_UNROLL(8)
      for (size_t k = 0; k < kRanks; ++k) {
        FetchCodesAhead<kVectors * kLanes * CodeBits(kCodec) / 8>(codes[k],
                                                                  i * CodeBits(kCodec) / 8);
        HWY_UNROLL(4)
        for (size_t v = 0; v < kVectors; ++v) {
          const size_t at = i + v * kLanes;
          if (k != 0) {
            sum[v] = AddValues(decoder[k], sum[v], codes[k], at);
          } else {
            sum[v] = decoder[0].At(codes[0], at);
            if constexpr (!kIsFirst)
              sum[v] = hn::Add(hn::LoadU(kF32, partial + begin + at), sum[v]);
          }
        }
      }
      HWY_UNROLL(4)
      for (size_t v = 0; v < kVectors; ++v) {
        const size_t at = begin + i + v * kLanes;
        if (end.step == SumEnd::kPartial) {
          hn::StoreU(sum[v], kF32, to + at);
          continue;
        }
        sum[v] = RankDecoder::Restore(sum[v]);
        if (end.step == SumEnd::kMultiply) sum[v] = hn::Mul(sum[v], factor);
        if (end.step == SumEnd::kDivide) sum[v] = hn::Div(sum[v], factor);
        if (end.is_streamed) {
          StoreF32As<DataType::kF32, true>(sum[v], to, at);
        } else {
          hn::StoreU(sum[v], kF32, to + at);
        }
      }
    };
    size_t i = 0;
    for (; i + kVectorsAtOnce * kLanes <= block_count; i += kVectorsAtOnce * kLanes) {
      add_vectors(i, std::integral_constant<size_t, kVectorsAtOnce>());
    }
    for (; i < block_count; i += kLanes) add_vectors(i, std::integral_constant<size_t, 1>());
  }
}

template <LowBitCodec kCodec, size_t kRanks>
HWY_INLINE void AddLowBitRanksOf(const RanksAtOnce& ranks, bool is_first, const float* partial,
                                 float* to, const SumEnd& end) {
#if ONEBIT_SUMS_EXACTLY
  if constexpr (kHasExactSum<kCodec>) {
    if (ranks.smallest_scales != nullptr) {
      if (is_first) return AddExactly<kCodec, kRanks, true>(ranks, partial, to, end);
      return AddExactly<kCodec, kRanks, false>(ranks, partial, to, end);
    }
  }
#endif
  if (is_first) {
    AddLowBitRanks<kCodec, kRanks, true>(ranks, partial, to, end);
  } else {
    AddLowBitRanks<kCodec, kRanks, false>(ranks, partial, to, end);
  }
}

// The elements from `begin` on that SumLowBitPackets takes at once: a part of a block, or, if its
// vectors reach into no other block, several whole ones.
HWY_INLINE size_t CountOfPart(const LowBitPackets& in, size_t begin) {
  const size_t end = HWY_MIN(in.count, (begin / in.block + 1) * in.block);
  if (in.block > kMaxSumCount / 2 || in.block % kLanes != 0) {
    return HWY_MIN(kMaxSumCount, end - begin);
  }
  return HWY_MIN(kMaxSumCount / in.block * in.block, in.count - begin);
}

// Looks at the scales of many parts at once, which takes a small fraction of the time. Parts are
// asked for in ascending order.
class ScaleBounds {
 public:
  ScaleBounds(const LowBitPackets& in, LowBitCodec codec) : in_(in), codec_(codec) {}

  // True if no sum of fewer than 2^16 values of the part can overflow.
  HWY_INLINE bool AreBounded(size_t begin, size_t count) {
    if (begin < begin_ || begin + count > end_) {
      begin_ = begin;
      end_ = HWY_MIN(in_.count, begin + kSpan);
      are_bounded_ = AreBlocksBounded(begin / in_.block, BlockCount(end_, in_.block));
    }
    return are_bounded_ ||
           AreBlocksBounded(begin / in_.block, BlockCount(begin + count, in_.block));
  }

 private:
  static constexpr size_t kSpan = 16 * kMaxSumCount;

  bool AreBlocksBounded(size_t begin, size_t end) const {
    // Bits of magnitudes order like numbers, with NaN above infinity.
    unsigned largest = 0;
    for (size_t rank = 0; rank < in_.ranks; ++rank) {
      const LowBitPacketView& packet = in_.packets[rank];
      for (size_t k = begin; k < end; ++k) largest = HWY_MAX(largest, packet.scales[k] & 0x7FFFu);
      if (!HasMinimum(codec_)) continue;
      for (size_t k = begin; k < end; ++k) largest = HWY_MAX(largest, packet.minimums[k] & 0x7FFFu);
    }
    constexpr unsigned k2To100 = (127 + 100) << 7;
    return largest < k2To100 && in_.ranks < 65536;
  }

  const LowBitPackets& in_;
  const LowBitCodec codec_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool are_bounded_ = false;
};

// The same as SumLowBitPackets, for a part or some of its blocks. `smallest_scales` is for
// AddExactly, or null.
template <LowBitCodec kCodec>
HWY_NOINLINE void SumBlocks(const LowBitPackets& in, size_t begin, size_t count, bool is_bounded,
                            const uint16_t* smallest_scales, float* to, bool is_streamed) {
  struct alignas(64) Copy {
    uint8_t bytes[kMaxSumCount * CodeBits(kCodec) / 8 + kCodePadding];
  };
  Copy copies[kMaxRanksAtOnce];
  alignas(64) float partial[kMaxSumCount];
  const size_t bytes = CodeBytes(kCodec, count);
  const size_t first_byte = begin * CodeBits(kCodec) / 8;
  const size_t first_block = begin / in.block;
  const bool is_copied =
      count % kLanes != 0 && first_byte + bytes + kCodePadding > CodeBytes(kCodec, in.count);
  // Ranks that are added one by one need no bounds.
  const bool is_one_by_one = AddsInFewerOperations<Decoder<kCodec>> && !is_bounded;
  LowBitPacketView copied[kMaxRanksAtOnce];
  for (size_t first = 0; first < in.ranks;) {
    const size_t left = is_one_by_one ? 1 : in.ranks - first;
    const size_t rank_count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    RanksAtOnce ranks = {.packets = in.packets + first,
                         .first_block = first_block,
                         .first_byte = first_byte,
                         .count = count,
                         .block = in.block,
                         .smallest_scales = smallest_scales};
    if (is_copied) {
      for (size_t k = 0; k < rank_count; ++k) {
        copied[k] = ranks.packets[k];
        memcpy(copies[k].bytes, copied[k].codes + first_byte, bytes);
        memset(copies[k].bytes + bytes, 0, kCodePadding);
        copied[k].codes = copies[k].bytes;
      }
      ranks.packets = copied;
      ranks.first_byte = 0;
    }
    const bool is_first = first == 0;
    first += rank_count;
    const bool is_last = first == in.ranks;
    SumEnd end = {.step = SumEnd::kPartial};
    if (is_last) end = {in.end.step, in.end.factor, is_streamed};
    float* target = is_last ? to : partial;
    switch (rank_count) {
      case 8:
        AddLowBitRanksOf<kCodec, 8>(ranks, is_first, partial, target, end);
        break;
      case 4:
        AddLowBitRanksOf<kCodec, 4>(ranks, is_first, partial, target, end);
        break;
      case 2:
        AddLowBitRanksOf<kCodec, 2>(ranks, is_first, partial, target, end);
        break;
      default:
        AddLowBitRanksOf<kCodec, 1>(ranks, is_first, partial, target, end);
    }
  }
}

// Decodes elements of a block, whole vectors of them.
template <LowBitCodec kCodec>
class BlockDecoder {
 public:
  // Elements that are decoded at once.
  static constexpr size_t kStep = 4 * kLanes;

  HWY_INLINE BlockDecoder(float scale, float minimum) : decoder_(scale, minimum) {}

  HWY_INLINE void At(const uint8_t* codes, size_t i, VF (&values)[4]) const {
    HWY_UNROLL(4)
    for (size_t v = 0; v < 4; ++v) values[v] = VectorAt(codes, i + v * kLanes);
  }
  HWY_INLINE VF VectorAt(const uint8_t* codes, size_t i) const {
    return Decoder<kCodec>::Restore(decoder_.At(codes, i));
  }

 private:
  const Decoder<kCodec> decoder_;
};

#if HWY_TARGET == HWY_AVX2
template <>
class BlockDecoder<LowBitCodec::kFp4> {
 public:
  static constexpr size_t kStep = 4 * kLanes;

  HWY_INLINE BlockDecoder(float scale, float minimum)
      : scale_(hn::Set(kF32, scale)), decoder_(scale, minimum) {}

  HWY_INLINE void At(const uint8_t* codes, size_t i, VF (&values)[4]) const {
    const __m256i pairs =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m256i bytes = _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4)),
                                           _mm256_set1_epi8(0x0F));
    // Fours with even numbers move to the lower half.
    UnitsOfFp4(_mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)),
               values);
    HWY_UNROLL(4)
    for (VF& value : values) value = hn::Mul(value, scale_);
  }
  HWY_INLINE VF VectorAt(const uint8_t* codes, size_t i) const { return decoder_.At(codes, i); }

 private:
  const VF scale_;
  const Decoder<LowBitCodec::kFp4> decoder_;
};
#endif

template <LowBitCodec kCodec, bool kStream>
HWY_INLINE void DecodeBlock(float scale, float minimum, const uint8_t* codes, size_t count,
                            float* to) {
  using Block = BlockDecoder<kCodec>;
  constexpr size_t kBits = CodeBits(kCodec);
  constexpr size_t kLine = HWY_MAX(kLineBytes * 8 / kBits, Block::kStep);
  const Block block(scale, minimum);
  const auto decode = [&](size_t i) HWY_ATTR {
    VF values[4];
    block.At(codes, i, values);
    HWY_UNROLL(4)
    for (size_t v = 0; v < 4; ++v) {
      StoreF32As<DataType::kF32, kStream>(values[v], to, i + v * kLanes);
    }
  };
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    FetchCodesAhead<kLineBytes>(codes, i * kBits / 8);
    for (size_t k = 0; k < kLine; k += Block::kStep) decode(i + k);
  }
  for (; i + Block::kStep <= count; i += Block::kStep) decode(i);
  for (; i < count; i += kLanes) {
    StoreF32As<DataType::kF32, kStream>(block.VectorAt(codes, i), to, i);
  }
}

// The same as SumLowBitPackets for a single rank, whose values are the sum.
template <LowBitCodec kCodec, bool kStream>
HWY_NOINLINE void DecodePart(const LowBitPackets& in, size_t begin, size_t count, float* to) {
  const LowBitPacketView& packet = in.packets[0];
  const uint8_t* codes = packet.codes + begin * CodeBits(kCodec) / 8;
  size_t index = begin / in.block;
  for (size_t i = 0; i < count; i += in.block, ++index) {
    DecodeBlock<kCodec, kStream>(FloatOfBits(packet.scales[index]),
                                 HasMinimum(kCodec) ? FloatOfBits(packet.minimums[index]) : 0,
                                 codes + i * CodeBits(kCodec) / 8, HWY_MIN(in.block, count - i),
                                 to + i);
  }
}

// Computes y without its residual for elements [begin, begin + count) of a piece, a part as above.
// `to` is written in whole vectors. `is_bounded` is by ScaleBounds.
template <LowBitCodec kCodec>
HWY_NOINLINE void SumLowBitPackets(const LowBitPackets& in, size_t begin, size_t count,
                                   bool is_bounded, float* to, bool is_streamed) {
  if (in.ranks == 1 && count % kLanes == 0) {
    if (is_streamed) return DecodePart<kCodec, true>(in, begin, count, to);
    return DecodePart<kCodec, false>(in, begin, count, to);
  }
#if ONEBIT_SUMS_EXACTLY
  if constexpr (kHasExactSum<kCodec>) {
    constexpr size_t kStep = ExactRanks<kCodec, kMaxRanksAtOnce>::kStep;
    if (in.ranks >= kMinExactRanks && count >= kStep && in.block % kStep == 0 &&
        in.block >= ExactBlocks::kMinBlock) {
      const size_t whole = count / kStep * kStep;
      ExactBlocks exact;
      FindExactBlocks<kCodec>(in, begin, whole, exact);
      for (size_t at = 0, end; at < count; at = end) {
        // Blocks that are alike are summed by one call.
        const size_t k = at / in.block;
        const uint32_t bits = at < whole ? exact.bits >> k : 0;
        const auto alike =
            static_cast<size_t>(bits % 2 != 0 ? std::countr_one(bits) : std::countr_zero(bits));
        end = HWY_MIN((k + alike) * in.block, bits % 2 != 0 ? whole : count);
        SumBlocks<kCodec>(in, begin + at, end - at, is_bounded,
                          bits % 2 != 0 ? exact.smallest_scales + k : nullptr, to + at,
                          is_streamed);
      }
      return;
    }
  }
#endif
  SumBlocks<kCodec>(in, begin, count, is_bounded, nullptr, to, is_streamed);
}

using SumPart = void (*)(const LowBitPackets& in, size_t begin, size_t count, bool is_bounded,
                         float* to, bool is_streamed);

inline SumPart ChooseSum(LowBitCodec codec) {
  switch (codec) {
    case LowBitCodec::kFp4:
      return &SumLowBitPackets<LowBitCodec::kFp4>;
    case LowBitCodec::kInt8:
    case LowBitCodec::kInt8Stochastic:
      return &SumLowBitPackets<LowBitCodec::kInt8>;
    case LowBitCodec::kUint8:
      return &SumLowBitPackets<LowBitCodec::kUint8>;
    case LowBitCodec::kInt2:
      return &SumLowBitPackets<LowBitCodec::kInt2>;
  }
  return nullptr;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
