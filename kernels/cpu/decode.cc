// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Signs and scales back to numbers, without compressing again.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/fp_env.h"
#include "kernels/cpu/packets-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Elements from `begin` on that share a scale and fit a tile.
HWY_INLINE size_t TileCount(size_t begin, size_t count, size_t block) {
  const size_t end = block == 0 ? count : std::min(count, (begin / block + 1) * block);
  return std::min(kTile, end - begin);
}

// output = sum * factor, 0 where masked.
HWY_INLINE void FinishTile(const float* sum, const uint8_t* mask, float factor, size_t count,
                           float* output) {
  for (size_t i = 0; i < count; i += kLanes) {
    VF value = hn::Mul(hn::Load(kF32, sum + i), hn::Set(kF32, factor));
    if (mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(mask, i), value);
    if (i + kLanes <= count) {
      hn::StoreU(value, kF32, output + i);
    } else {
      alignas(64) float last[kLanes];
      hn::Store(value, kF32, last);
      memcpy(output + i, last, (count - i) * sizeof(float));
    }
  }
}

// Sums of packets as fp32. Without mask and factor whole vectors go straight to the output.
void DecodeSum(const Packets& packets, size_t block, const uint8_t* mask, float factor,
               float* output) {
  const bool is_streamed = ShouldStream(output, packets.count * sizeof(float));
  alignas(64) float sum[kTile];
  TileBits mask_bits;
  size_t count;
  for (size_t begin = 0; begin < packets.count; begin += count) {
    count = TileCount(begin, packets.count, block);
    const size_t scale_index = block == 0 ? 0 : begin / block;
    if (mask == nullptr && factor == 1 && count % kLanes == 0) {
      SumPackets(packets, begin, count, scale_index, sum, {output + begin, is_streamed});
      continue;
    }
    SumPackets(packets, begin, count, scale_index, sum, {sum, false});
    if (mask != nullptr) CopyBitsPadded(mask + begin / 8, count, mask_bits.bytes);
    FinishTile(sum, mask == nullptr ? nullptr : mask_bits.bytes, factor, count, output + begin);
  }
  if (is_streamed) hwy::FlushStream();
}

using D16 = hn::ScalableTag<uint16_t>;
inline constexpr D16 k16{};
inline constexpr size_t kLanes16 = hn::MaxLanes(D16());

// Decodes to 16-bit elements whose bits are `positive` where a bit is clear.
template <bool kStream>
HWY_NOINLINE void DecodeTile16(const uint8_t* bits, const uint8_t* mask, uint16_t positive,
                               size_t count, uint16_t* output) {
  const auto plus = hn::Set(k16, positive);
  const auto minus = hn::Set(k16, static_cast<uint16_t>(positive ^ 0x8000));
  for (size_t i = 0; i < count; i += kLanes16) {
    auto value = hn::IfThenElse(MaskOfBits(k16, bits, i), minus, plus);
    if (mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(k16, mask, i), value);
    if (i + kLanes16 <= count) {
      if constexpr (kStream && kLanes16 * 2 >= HWY_STREAM_MULTIPLE) {
        hn::Stream(value, k16, output + i);
      } else {
        hn::StoreU(value, k16, output + i);
      }
    } else {
      alignas(64) uint16_t last[kLanes16];
      hn::Store(value, k16, last);
      memcpy(output + i, last, (count - i) * sizeof(uint16_t));
    }
  }
}

HWY_INLINE uint16_t BitsOfScale(float t, DataType type) {
  const VF value = hn::Set(kF32, t);
  return static_cast<uint16_t>(
      hn::GetLane(type == DataType::kF16 ? F16BitsOf(value) : Bf16BitsOf(value)));
}

void Decode16(const uint8_t* bits, const float* scales, size_t piece_count, size_t block,
              const uint8_t* mask, DataType type, uint16_t* output) {
  const bool is_streamed = ShouldStream(output, piece_count * sizeof(uint16_t));
  TileBits bits_copy;
  TileBits mask_copy;
  size_t count;
  for (size_t begin = 0; begin < piece_count; begin += count) {
    count = TileCount(begin, piece_count, block);
    const uint8_t* tile_bits = bits + begin / 8;
    if (!HasBitPadding(begin + count, piece_count)) {
      CopyBitsPadded(tile_bits, count, bits_copy.bytes);
      tile_bits = bits_copy.bytes;
    }
    if (mask != nullptr) CopyBitsPadded(mask + begin / 8, count, mask_copy.bytes);
    const uint8_t* tile_mask = mask == nullptr ? nullptr : mask_copy.bytes;
    const uint16_t positive = BitsOfScale(scales[block == 0 ? 0 : begin / block], type);
    if (is_streamed) {
      DecodeTile16<true>(tile_bits, tile_mask, positive, count, output + begin);
    } else {
      DecodeTile16<false>(tile_bits, tile_mask, positive, count, output + begin);
    }
  }
  if (is_streamed) hwy::FlushStream();
}

}  // namespace

void DecodeAverage(const ReduceInput& in, size_t block, float* output) {
  DecodeSum(PacketsOf(in), block, in.mask, in.is_sum ? static_cast<float>(in.ranks) : 1, output);
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  if (output_type == DataType::kF32) {
    const Packets one = {&bits, &scales, 1, count, 1};
    DecodeSum(one, block, mask, 1, static_cast<float*>(output));
  } else {
    Decode16(bits, scales, count, block, mask, output_type, static_cast<uint16_t*>(output));
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(DecodeAverage);
HWY_EXPORT(Decode);

void DecodeAverage(const ReduceInput& in, size_t block, float* output) {
  const DefaultFpScope fp;
  HWY_DYNAMIC_DISPATCH(DecodeAverage)(in, block, output);
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  const DefaultFpScope fp;
  HWY_DYNAMIC_DISPATCH(Decode)(bits, scales, count, block, mask, output_type, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
