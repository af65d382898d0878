// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Low-bit packets to numbers, without compressing them again.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/low_bit_decode.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cached_values-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/low_bit_sum-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/low_bit.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

struct alignas(64) SumScratch {
  float sum[kMaxSumCount];
  TileBits mask;
};

// Counts blocks [begin, end) that have a scale which is infinite or NaN.
inline size_t CountNonfinite(const LowBitPackets& in, size_t begin, size_t end) {
  size_t nonfinite = 0;
  for (size_t k = begin; k < end; ++k) {
    bool is_finite = true;
    for (size_t rank = 0; rank < in.ranks; ++rank) {
      is_finite = is_finite && !reference::IsNonfiniteScale(in.packets[rank].scales[k]);
    }
    nonfinite += is_finite ? 0 : 1;
  }
  return nonfinite;
}

// Calls `decode` with (begin, count, mask, is_bounded) for all parts of a piece, in order. `mask`
// is padded, or null. Returns how many blocks are not finite.
template <class DecodePart>
HWY_INLINE size_t ForEachPart(const LowBitPackets& in, LowBitCodec codec, const uint8_t* mask,
                              TileBits& mask_bits, const DecodePart& decode) {
  ScaleBounds bounds(in, codec);
  size_t nonfinite = 0;
  size_t count;
  for (size_t begin = 0; begin < in.count; begin += count) {
    count = CountOfPart(in, begin);
    const bool is_bounded = bounds.AreBounded(begin, count);
    const size_t first_block = begin / in.block;
    // A block counts with its first part.
    if (HWY_UNLIKELY(!is_bounded) && begin == first_block * in.block) {
      nonfinite += CountNonfinite(in, first_block, BlockCount(begin + count, in.block));
    }
    if (mask != nullptr) CopyMask(mask, begin, count, mask_bits.bytes);
    decode(begin, count, mask == nullptr ? nullptr : mask_bits.bytes, is_bounded);
  }
  return nonfinite;
}

template <DataType kType>
LowBitResult AverageAs(const LowBitReduceInput& in, LowBitFormat format, ElementOf<kType>* output) {
  const LowBitPackets packets(in, format);
  const SumPart sum = ChooseSum(format.codec);
  const bool is_streamed =
      ShouldStream(output, in.count * sizeof(output[0])) && format.block % kLanes == 0;
  SumScratch scratch;
  LargestMagnitude<kType> largest;
  const size_t nonfinite = ForEachPart(
      packets, format.codec, in.mask, scratch.mask,
      [&](size_t begin, size_t count, const uint8_t* mask, bool is_bounded) HWY_ATTR {
        if constexpr (kType == DataType::kF32) {
          if (mask == nullptr && is_bounded && count % kLanes == 0) {
            sum(packets, begin, count, is_bounded, output + begin, is_streamed);
            return;
          }
        }
        sum(packets, begin, count, is_bounded, scratch.sum, false);
        StoreOutput<kType>(scratch.sum, mask, count, is_streamed, output + begin, largest);
      });
  if (is_streamed) hwy::FlushStream();
  return {.nonfinite_blocks = nonfinite, .is_finite = nonfinite == 0 && largest.IsFinite()};
}

template <DataType kType>
LowBitResult AddDeltaAs(const LowBitDeltaInput& in, LowBitFormat format, ElementOf<kType>* output) {
  const LowBitReduceInput one = {
      .packets = &in.packet, .ranks = 1, .count = in.count, .is_sum = true};
  const LowBitPackets packets(one, format);
  const SumPart decode = ChooseSum(format.codec);
  SumScratch scratch;
  alignas(64) ElementOf<kType> dropped[kMaxSumCount];  // without an output
  LargestMagnitude<kType> largest;
  const size_t nonfinite =
      ForEachPart(packets, format.codec, in.mask, scratch.mask,
                  [&](size_t begin, size_t count, const uint8_t* mask, bool is_bounded) HWY_ATTR {
                    decode(packets, begin, count, is_bounded, scratch.sum, false);
                    TakeUpDelta(in.held_in + begin, mask, count, scratch.sum, in.held_out + begin);
                    StoreOutput<kType>(scratch.sum, nullptr, count, false,
                                       output == nullptr ? dropped : output + begin, largest);
                  });
  return {.nonfinite_blocks = nonfinite, .is_finite = nonfinite == 0 && largest.IsFinite()};
}

}  // namespace

LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  switch (in.output_type) {
    case DataType::kF32:
      return AverageAs<DataType::kF32>(in, format, static_cast<float*>(output));
    case DataType::kF16:
      return AverageAs<DataType::kF16>(in, format, static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return AverageAs<DataType::kBf16>(in, format, static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  switch (in.output_type) {
    case DataType::kF32:
      return AddDeltaAs<DataType::kF32>(in, format, static_cast<float*>(output));
    case DataType::kF16:
      return AddDeltaAs<DataType::kF16>(in, format, static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return AddDeltaAs<DataType::kBf16>(in, format, static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  return LowBitAverage({.packets = &packet,
                        .ranks = 1,
                        .mask = mask,
                        .count = count,
                        .output_type = output_type,
                        .is_sum = true},
                       format, output);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(LowBitAverage);
HWY_EXPORT(LowBitAddDelta);
HWY_EXPORT(LowBitDecode);

LowBitResult LowBitAverage(const LowBitReduceInput& in, LowBitFormat format, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LowBitAverage)(in, format, output);
}

LowBitResult LowBitAddDelta(const LowBitDeltaInput& in, LowBitFormat format, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LowBitAddDelta)(in, format, output);
}

LowBitResult LowBitDecode(LowBitPacketView packet, LowBitFormat format, size_t count,
                          const uint8_t* mask, DataType output_type, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(LowBitDecode)(packet, format, count, mask, output_type, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
