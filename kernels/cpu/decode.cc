// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts signs and scales back to numbers, without compressing again.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/packets-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/kernels.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Counts the elements from `begin` on that share a scale and fit a tile.
HWY_INLINE size_t TileCount(size_t begin, size_t count, size_t block) {
  const size_t end = block == 0 ? count : std::min(count, (begin / block + 1) * block);
  return std::min(kTile, end - begin);
}

// Stores the first `count` lanes.
template <DataType kType>
HWY_INLINE void StoreFirst(VF value, size_t count, ElementOf<kType>* output) {
  alignas(64) ElementOf<kType> last[kLanes];
  StoreF32As<kType>(value, last, 0);
  memcpy(output, last, count * sizeof(last[0]));
}

// output = sum * factor, 0 where masked.
template <DataType kType>
HWY_INLINE void FinishTile(const float* sum, const uint8_t* mask, float factor, size_t count,
                           ElementOf<kType>* output, LargestMagnitude<kType>& largest) {
  for (size_t i = 0; i < count; i += kLanes) {
    VF value = hn::Mul(hn::Load(kF32, sum + i), hn::Set(kF32, factor));
    if (mask != nullptr) value = hn::IfThenElseZero(MaskOfBits(mask, i), value);
    if (i + kLanes <= count) {
      largest.Add(value);
      StoreF32As<kType>(value, output, i);
    } else {
      // The sums of a piece are followed by leftovers of an earlier tile.
      value = hn::IfThenElseZero(hn::FirstN(kF32, count - i), value);
      largest.Add(value);
      StoreFirst<kType>(value, count - i, output + i);
    }
  }
}

// True if no intermediate rounding can move a sum of these scales out of range.
HWY_INLINE bool IsFarFromInfinity(const Packets& packets, size_t scale_index) {
  double sum = 0;
  for (size_t rank = 0; rank < packets.ranks; ++rank) sum += packets.scales[rank][scale_index];
  return sum / packets.divisor < 0x1p127;
}

// Decodes sums of packets. Without mask and factor, whole vectors of fp32 go directly to the
// output.
template <DataType kType>
bool DecodeSum(const Packets& packets, size_t block, const uint8_t* mask, float factor,
               ElementOf<kType>* output) {
  const bool is_streamed =
      kType == DataType::kF32 && ShouldStream(output, packets.count * sizeof(float));
  alignas(64) float sum[kTile];
  TileBits mask_bits;
  LargestMagnitude<kType> largest;
  size_t count;
  for (size_t begin = 0; begin < packets.count; begin += count) {
    count = TileCount(begin, packets.count, block);
    const size_t scale_index = block == 0 ? 0 : begin / block;
    if constexpr (kType == DataType::kF32) {
      if (mask == nullptr && factor == 1 && count % kLanes == 0 &&
          IsFarFromInfinity(packets, scale_index)) {
        SumPackets(packets, begin, count, scale_index, sum, {output + begin, is_streamed});
        continue;
      }
    }
    SumPackets(packets, begin, count, scale_index, sum, {sum, false});
    if (mask != nullptr) CopyBitsPadded(mask + begin / 8, count, mask_bits.bytes);
    FinishTile<kType>(sum, mask == nullptr ? nullptr : mask_bits.bytes, factor, count,
                      output + begin, largest);
  }
  if (is_streamed) hwy::FlushStream();
  return largest.IsFinite();
}

// A part of a piece under one scale; `bits` and `mask` are padded.
struct DeltaTile {
  const uint8_t* bits;
  const uint8_t* mask;
  const float* held_in;
  float* held_out;
  size_t count;
  float scale;
};

HWY_INLINE VF HeldAfter(VF held, const DeltaTile& tile, size_t i) {
  const VF plus = hn::Set(kF32, tile.scale);
  held = hn::Sub(held, hn::IfThenElse(MaskOfBits(tile.bits, i), hn::Neg(plus), plus));
  return tile.mask == nullptr ? held : hn::IfThenElseZero(MaskOfBits(tile.mask, i), held);
}

template <DataType kType>
HWY_INLINE void AddTile(const DeltaTile& tile, ElementOf<kType>* output,
                        LargestMagnitude<kType>& largest) {
  size_t i = 0;
  for (; i + kLanes <= tile.count; i += kLanes) {
    const VF held = HeldAfter(hn::LoadU(kF32, tile.held_in + i), tile, i);
    const VF value = hn::Sub(hn::Zero(kF32), held);
    hn::StoreU(held, kF32, tile.held_out + i);
    StoreF32As<kType>(value, output, i);
    largest.Add(value);
  }
  if (i == tile.count) return;
  const size_t left = tile.count - i;
  alignas(64) float last[kLanes] = {};
  memcpy(last, tile.held_in + i, left * sizeof(float));
  const VF held =
      hn::IfThenElseZero(hn::FirstN(kF32, left), HeldAfter(hn::Load(kF32, last), tile, i));
  const VF value = hn::Sub(hn::Zero(kF32), held);
  StoreFirst<DataType::kF32>(held, left, tile.held_out + i);
  StoreFirst<kType>(value, left, output + i);
  largest.Add(value);
}

template <DataType kType>
bool AddDeltaAs(const DeltaInput& in, size_t block, ElementOf<kType>* output) {
  TileBits bits;
  TileBits mask;
  alignas(64) ElementOf<kType> dropped[kTile];  // without an output
  LargestMagnitude<kType> largest;
  size_t count;
  for (size_t begin = 0; begin < in.count; begin += count) {
    count = TileCount(begin, in.count, block);
    CopyBitsPadded(in.bits + begin / 8, count, bits.bytes);
    if (in.mask != nullptr) CopyBitsPadded(in.mask + begin / 8, count, mask.bytes);
    const DeltaTile tile = {bits.bytes,
                            in.mask == nullptr ? nullptr : mask.bytes,
                            in.held_in + begin,
                            in.held_out + begin,
                            count,
                            in.scales[block == 0 ? 0 : begin / block]};
    AddTile<kType>(tile, output == nullptr ? dropped : output + begin, largest);
  }
  return largest.IsFinite();
}

using D16 = hn::ScalableTag<uint16_t>;
inline constexpr D16 k16{};
inline constexpr size_t kLanes16 = hn::MaxLanes(D16());

// Decodes to 16-bit elements; a clear bit gives the bits `positive`.
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

bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  const float factor = in.is_sum ? static_cast<float>(in.ranks) : 1;
  switch (in.output_type) {
    case DataType::kF32:
      return DecodeSum<DataType::kF32>(PacketsOf(in), block, in.mask, factor,
                                       static_cast<float*>(output));
    case DataType::kF16:
      return DecodeSum<DataType::kF16>(PacketsOf(in), block, in.mask, factor,
                                       static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return DecodeSum<DataType::kBf16>(PacketsOf(in), block, in.mask, factor,
                                        static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return false;
}

bool AddDelta(const DeltaInput& in, size_t block, void* output) {
  switch (in.output_type) {
    case DataType::kF32:
      return AddDeltaAs<DataType::kF32>(in, block, static_cast<float*>(output));
    case DataType::kF16:
      return AddDeltaAs<DataType::kF16>(in, block, static_cast<uint16_t*>(output));
    case DataType::kBf16:
      return AddDeltaAs<DataType::kBf16>(in, block, static_cast<uint16_t*>(output));
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return false;
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  if (output_type == DataType::kF32) {
    const Packets one = {&bits, &scales, 1, count, 1};
    DecodeSum<DataType::kF32>(one, block, mask, 1, static_cast<float*>(output));
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
HWY_EXPORT(AddDelta);
HWY_EXPORT(Decode);

bool DecodeAverage(const ReduceInput& in, size_t block, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(DecodeAverage)(in, block, output);
}

bool AddDelta(const DeltaInput& in, size_t block, void* output) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(AddDelta)(in, block, output);
}

void Decode(const uint8_t* bits, const float* scales, size_t count, size_t block,
            const uint8_t* mask, DataType output_type, void* output) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(Decode)(bits, scales, count, block, mask, output_type, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
