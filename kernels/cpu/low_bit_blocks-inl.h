// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts blocks to low-bit packets. The code is the same for the worker and the server, which
// differ in their `Source`:
//   in                      CompressInput or LowBitReduceInput
//   InputType()             the type of the input in TileInput
//   ValueType()             the type that decoded values are rounded to
//   ChunkAt(begin, count)   TileInput of a chunk of the piece, without mask
//
// The codes of a block can be computed only when its scale is known. A block that fits a tile waits
// in one of a few slots, alone or with its neighbours, and is encoded, part by part, while a later
// one is read into its place, so that memory is busy all the time. A scale takes as long as reading
// 128 elements, nearly all of it waiting for one operation after the other: the scales of all slots
// are computed together. Longer blocks are read twice. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/low_bit_emit-inl.h"
#include "kernels/cpu/low_bit_read-inl.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/cpu/sum-inl.h"
#include "kernels/low_bit.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <class Source>
class LowBitEncoder {
  static_assert(reference::kMinLowBitScale * kMaxGroupInverse == 1);

 public:
  LowBitEncoder(Source& source, LowBitFormat format, const Draws& draws, LowBitPacket out)
      : source_(source),
        format_(format),
        draws_(draws),
        out_(out),
        statistic_(StatisticOf(format.codec)),
        readers_(ReadersOf(source.InputType(), ResidualOf(source.in), statistic_)),
        is_residual_streamed_(IsStreamed(source.in) && format.block % kLanes == 0),
        are_codes_streamed_(ShouldStream(out.codes, CodeBytes(format.codec, source.in.count))) {
    const bool has_residual = source.in.residual_out != nullptr;
    emit_ = ChooseEmitChunk(format.codec, has_residual ? ResidualOf(source.in) : Residual::kNone,
                            is_residual_streamed_);
#if ONEBIT_PACKS_VECTORS
    const Residual residual = ResidualOf(source.in);
    const bool is_residual_kept = residual == Residual::kNone || has_residual;
    if (source.in.mask == nullptr && source.ValueType() == DataType::kF32 &&
        format.block % kVectorGroup == 0 && is_residual_kept) {
      swap_ = ChooseSwapChunk(format.codec, source.InputType(), residual, is_residual_streamed_);
    }
#endif
  }

  LowBitResult Run() {
    if (format_.block > kTile) {
      for (size_t begin = 0; begin < source_.in.count; begin += format_.block) EncodeLong(begin);
    } else {
      EncodeShort();
    }
    if (is_residual_streamed_ || are_codes_streamed_) hwy::FlushStream();
    return result_;
  }

 private:
  // An odd number: slots of 512 or 1024 bytes then do not fill whole pages, and z does not stay at
  // one distance from the input modulo a page, at which loads can seem to depend on stores.
  static constexpr size_t kSlots = 7;
  // Short blocks share a slot: setting out to read or to encode one takes as long as 32 elements.
  static constexpr size_t kMaxBlocks = 4;

  // Blocks whose z is in a slot, one after the other.
  struct Slot {
    size_t begin = 0;
    size_t count = 0;
    const uint8_t* mask = nullptr;
    bool can_swap = false;  // all scales are finite, and their inverses below kMaxGroupInverse
    BlockScale scales[kMaxBlocks];
  };

  size_t BlocksOfSlot() const {
    if (format_.block % 16 != 0) return 1;  // masks and vectors of z begin with a slot
    return std::clamp<size_t>(kChunk / format_.block, 1, kMaxBlocks);
  }

  void EncodeShort() {
    Slot slots[kSlots];
    const size_t length = BlocksOfSlot() * format_.block;
    const size_t stride = (length + kLanes - 1) / kLanes * kLanes;
    const size_t slot_count = std::min(kSlots, kTile / stride);
    for (size_t begin = 0; begin < source_.in.count;) {
      size_t used = 0;
      for (; used < slot_count && begin < source_.in.count; ++used) {
        const size_t count = std::min(length, source_.in.count - begin);
        Swap(slots[used], begin, count, z_ + used * stride, slot_count + 1,
             lanes_ + used * kMaxBlocks);
        begin += count;
      }
      if (statistic_ == Statistic::kMagnitude && SetScalesByMagnitude(slots, used)) continue;
      for (size_t k = 0; k < used; ++k) {
        SetScales(slots[k], z_ + k * stride, lanes_ + k * kMaxBlocks);
      }
    }
    for (size_t k = 0; k < slot_count; ++k) {
      Swap(slots[k], 0, 0, z_ + k * stride, 0, lanes_ + k * kMaxBlocks);
    }
  }

  // Encodes the blocks of a slot while others, possibly none, take their place.
  HWY_INLINE void Swap(Slot& slot, size_t begin, size_t count, float* z, size_t mask_count,
                       StatisticLanes* lanes) {
    const uint8_t* mask = count == 0 ? nullptr : TakeMask(begin, count, mask_count);
    for (size_t k = 0; k * format_.block < count; ++k) lanes[k].Clear(statistic_);
#if ONEBIT_PACKS_VECTORS
    if (swap_ != nullptr && slot.can_swap && slot.count == count && count % format_.block == 0) {
      for (size_t offset = 0; offset < count; offset += kChunk) {
        const size_t chunk = std::min(kChunk, count - offset);
        const TileInput entering = source_.ChunkAt(begin + offset, chunk);
        swap_(OutputAt(slot.scales, nullptr, slot.begin + offset, chunk, nullptr), entering,
              z + offset, lanes);
      }
      slot.begin = begin;
      return;
    }
#endif
    const size_t longer = std::max(slot.count, count);
    for (size_t offset = 0; offset < longer; offset += kChunk) {
      if (offset < slot.count) {
        Emit(slot.scales, slot.mask, slot.begin, offset, std::min(kChunk, slot.count - offset),
             z + offset);
      }
      if (offset < count) {
        Read(readers_.read, mask, begin, offset, std::min(kChunk, count - offset), z + offset,
             lanes);
      }
    }
    slot.begin = begin;
    slot.count = count;
    slot.mask = mask;
  }

  HWY_INLINE void SetScales(Slot& slot, const float* z, const StatisticLanes* lanes) {
    BlockScale* scale = slot.scales;
    slot.can_swap = true;
    for (size_t begin = 0; begin < slot.count; begin += format_.block, ++lanes, ++scale) {
      const size_t count = std::min(format_.block, slot.count - begin);
      const uint8_t* mask = slot.mask == nullptr ? nullptr : slot.mask + begin / 8;
      *scale = ScaleOf(slot.begin + begin, count, mask, z + begin, *lanes);
      slot.can_swap = slot.can_swap && scale->is_finite && scale->inverse < kMaxGroupInverse;
    }
  }

  // Computes the scales of all slots at once, as reference::ScaleOfBlock does one by one. Returns
  // false if a block cannot be swapped.
  HWY_INLINE bool SetScalesByMagnitude(Slot* slots, size_t used) {
    constexpr size_t kMost = kSlots * kMaxBlocks;
    constexpr size_t kRoom = (kMost + kLanes - 1) / kLanes * kLanes;
    alignas(64) float largest[kRoom], scales[kRoom], inverses[kRoom];
    alignas(64) uint16_t scale_bits[kRoom];
    size_t count = 0;
    for (size_t k = 0; k < used; ++k) {
      const StatisticLanes* lanes = lanes_ + k * kMaxBlocks;
      for (size_t begin = 0; begin < slots[k].count; begin += format_.block, ++lanes) {
        const VI32 magnitude = hn::MaxOfLanes(kI32, hn::Load(kI32, lanes->magnitude));
        largest[count++] = std::bit_cast<float>(hn::GetLane(magnitude));
      }
    }
    const VF divisor = hn::Set(kF32, reference::LargestUnit(format_.codec));
    const VF least = hn::Set(kF32, reference::kMinLowBitScale);
    const bool rounds_up = reference::RoundsScaleUp(format_.codec);
    for (size_t k = 0; k < count; k += kLanes) {
      const VF magnitude =
          hn::IfThenElseZero(hn::FirstN(kF32, count - k), hn::Load(kF32, largest + k));
      VF exact = hn::Div(magnitude, divisor);
      if (rounds_up) {
        const MF has_scale = hn::Gt(magnitude, hn::Zero(kF32));
        exact = hn::Max(exact, hn::IfThenElseZero(has_scale, least));
      }
      VU32 bits = rounds_up ? Bf16BitsAtLeast(exact) : Bf16BitsOf(exact);
      VF scale = hn::BitCast(kF32, hn::ShiftLeft<16>(bits));
      const MF is_finite = hn::And(hn::Lt(magnitude, hn::Set(kF32, reference::kLowBitLimit)),
                                   hn::Le(scale, hn::Set(kF32, reference::kMaxLowBitScale)));
      // The inverse of the least scale is kMaxGroupInverse.
      if (HWY_UNLIKELY(!hn::AllTrue(kF32, hn::AndNot(hn::Eq(scale, least), is_finite))))
        return false;
      const MF is_zero = hn::Lt(scale, least);
      scale = hn::IfThenZeroElse(is_zero, scale);
      bits = hn::IfThenZeroElse(hn::RebindMask(kU32, is_zero), bits);
      hn::Store(scale, kF32, scales + k);
      hn::Store(hn::IfThenZeroElse(is_zero, hn::Div(hn::Set(kF32, 1), scale)), kF32, inverses + k);
      hn::Store(hn::TruncateTo(kU16, bits), kU16, scale_bits + k);
    }
    memcpy(out_.scales + slots[0].begin / format_.block, scale_bits, count * sizeof(scale_bits[0]));
    size_t index = 0;
    for (size_t k = 0; k < used; ++k) {
      BlockScale* scale = slots[k].scales;
      slots[k].can_swap = true;
      for (size_t begin = 0; begin < slots[k].count; begin += format_.block, ++scale, ++index) {
        *scale = {scales[index], 0, inverses[index], true};
      }
    }
    return true;
  }

  HWY_INLINE BlockScale ScaleOf(size_t begin, size_t count, const uint8_t* mask, const float* z,
                                const StatisticLanes& lanes) {
    LowBitStatistics statistics = StatisticsOf(statistic_, lanes, Participants(mask, count));
    if (statistic_ == Statistic::kSquares) {
      const float narrow = TreeSum(lanes.squares);
      statistics.sum_of_squares = narrow;
      if (HWY_UNLIKELY(!IsSafeSum(narrow))) {
        WideSum wide;
        wide.Add(z, count, ScaleRule::kL2);
        TakeWide(narrow, wide, statistics);
      }
    }
    return Send(begin, count, statistics);
  }

  // Encodes a block that is longer than a tile.
  void EncodeLong(size_t begin) {
    const size_t count = std::min(format_.block, source_.in.count - begin);
    StatisticLanes& lanes = lanes_[0];
    lanes.Clear(statistic_);
    size_t participants = 0;
    const auto read_all = [&](ReadChunk read, const auto& then) HWY_ATTR {
      for (size_t tile = begin; tile < begin + count; tile += kTile) {
        const size_t tile_count = std::min(kTile, begin + count - tile);
        const uint8_t* mask = TakeMask(tile, tile_count, 2);
        for (size_t offset = 0; offset < tile_count; offset += kChunk) {
          const size_t chunk_count = std::min(kChunk, tile_count - offset);
          Read(read, mask, tile, offset, chunk_count, z_, &lanes);
          then(mask, tile, offset, chunk_count);
        }
      }
    };
    read_all(readers_.read, [&](const uint8_t* mask, size_t, size_t offset, size_t chunk_count) {
      participants += Participants(mask == nullptr ? nullptr : mask + offset / 8, chunk_count);
    });
    LowBitStatistics block = StatisticsOf(statistic_, lanes, participants);
    if (statistic_ == Statistic::kSquares) {
      const float narrow = TreeSum(lanes.squares);
      block.sum_of_squares = narrow;
      if (!IsSafeSum(narrow)) {
        WideSum wide;
        read_all(readers_.load, [&](const uint8_t*, size_t, size_t, size_t chunk_count)
                                    HWY_ATTR { wide.Add(z_, chunk_count, ScaleRule::kL2); });
        TakeWide(narrow, wide, block);
      }
    }
    const BlockScale scale = Send(begin, count, block);
    if (!scale.is_finite) return;
    read_all(readers_.load, [&](const uint8_t* mask, size_t tile, size_t offset, size_t chunk_count)
                                HWY_ATTR { Emit(&scale, mask, tile, offset, chunk_count, z_); });
  }

  // Returns a padded copy, which is valid until this has been called `mask_count` times more.
  HWY_INLINE const uint8_t* TakeMask(size_t begin, size_t count, size_t mask_count) {
    if (source_.in.mask == nullptr) return nullptr;
    const size_t bytes = BitBytes(std::clamp(format_.block, kChunk, kTile)) + kBitPadding;
    mask_ = mask_ + 1 >= mask_count ? 0 : mask_ + 1;
    CopyMask(source_.in.mask, begin, count, masks_ + mask_ * bytes);
    return masks_ + mask_ * bytes;
  }

  static HWY_INLINE size_t Participants(const uint8_t* mask, size_t count) {
    if (mask == nullptr) return count;
    size_t participants = 0;
    for (size_t i = 0; i < count; i += kLanes) {
      const size_t left = std::min(kLanes, count - i);
      participants += hn::CountTrue(kF32, hn::And(MaskOfBits(mask, i), hn::FirstN(kF32, left)));
    }
    return participants;
  }

  // `begin` is where the tile begins, and `offset` where the chunk does in it.
  HWY_INLINE void Read(ReadChunk read, const uint8_t* mask, size_t begin, size_t offset,
                       size_t count, float* z, StatisticLanes* lanes) {
    TileInput chunk = source_.ChunkAt(begin + offset, count);
    chunk.mask = mask == nullptr ? nullptr : mask + offset / 8;
    read(chunk, format_.block, z, lanes);
  }

  HWY_INLINE void Emit(const BlockScale* scales, const uint8_t* mask, size_t begin, size_t offset,
                       size_t count, const float* z) {
    ChunkDraws draws;
    const size_t first = begin + offset;
    const bool has_draws = format_.codec == LowBitCodec::kInt8Stochastic;
    if (!emit_(OutputAt(scales, mask == nullptr ? nullptr : mask + offset / 8, first, count,
                        has_draws ? FillDraws(draws_, first, count, draws) : nullptr),
               z)) {
      result_.is_finite = false;
    }
  }

  HWY_INLINE ChunkOutput OutputAt(const BlockScale* scales, const uint8_t* mask, size_t begin,
                                  size_t count, const uint32_t* draws) const {
    return {.scales = scales,
            .block = format_.block,
            .mask = mask,
            .draws = draws,
            .count = count,
            .residual = At(source_.in.residual_out, source_.in.residual_type, begin),
            .value_type = source_.ValueType(),
            .codes = out_.codes + begin * CodeBits(format_.codec) / 8,
            .are_codes_streamed = are_codes_streamed_};
  }

  static void TakeWide(float narrow, WideSum& wide, LowBitStatistics& block) {
    const BlockSum sum = ChooseSumOf(narrow, wide, Residual::kBf16);
    block.sum_of_squares = sum.sum;
    block.is_in_range = sum.is_in_range;
  }

  // Writes the scale. A block that is not finite is finished with it.
  HWY_INLINE BlockScale Send(size_t begin, size_t count, const LowBitStatistics& block) {
    const LowBitScale scale = reference::ScaleOfBlock(format_.codec, block);
    const size_t index = begin / format_.block;
    out_.scales[index] = scale.scale_bits;
    if (HasMinimum(format_.codec)) out_.minimums[index] = scale.minimum_bits;
    if (HWY_UNLIKELY(!scale.is_finite)) {
      memset(out_.codes + begin * CodeBits(format_.codec) / 8, 0, CodeBytes(format_.codec, count));
      ++result_.nonfinite_blocks;
      result_.is_finite = false;
    }
    return {scale.scale, scale.minimum, scale.inverse, scale.is_finite};
  }

  Source& source_;
  const LowBitFormat format_;
  const Draws& draws_;
  const LowBitPacket out_;
  const Statistic statistic_;
  const ChunkReaders readers_;
  const bool is_residual_streamed_;
  const bool are_codes_streamed_;
  EmitChunk emit_;
#if ONEBIT_PACKS_VECTORS
  SwapChunk swap_ = nullptr;
#endif
  LowBitResult result_;
  alignas(64) float z_[kTile];
  StatisticLanes lanes_[kSlots * kMaxBlocks];
  uint8_t masks_[2 * (kTile / 8 + kBitPadding)];  // two of a tile, or more of shorter slots
  size_t mask_ = 0;
};

template <class Source>
LowBitResult EncodeLowBitBlocks(Source& source, LowBitFormat format, const Draws& draws,
                                LowBitPacket out) {
  LowBitEncoder<Source> encoder(source, format, draws, out);
  return encoder.Run();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
