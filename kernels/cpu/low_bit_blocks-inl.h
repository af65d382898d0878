// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts blocks to low-bit packets. The code is the same for the worker and the server, which
// differ in their `Source`:
//   in                      CompressInput or LowBitReduceInput
//   InputType()             the type of the input in TileInput
//   ValueType()             the type that decoded values are rounded to
//   ChunkAt(begin, count)   TileInput of a part of the piece that is in one block, without mask
//
// The codes of a block can be computed only when its scale is known. A block that fits a tile waits
// in one of a few slots, and is encoded, chunk by chunk, while a later one is read into its place,
// so that memory is busy all the time. A scale takes as long as reading 128 elements, nearly all of
// it waiting for one operation after the other: the scales of all slots are computed together.
// Longer blocks are read twice. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#undef ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_LOW_BIT_BLOCKS_INL_H_
#endif

#include <algorithm>
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

  // A block whose z is in the tile.
  struct Block {
    size_t begin = 0;
    size_t count = 0;
    const uint8_t* mask = nullptr;
    BlockScale scale;
  };

  void EncodeShort() {
    Block blocks[kSlots];
    const size_t stride = (format_.block + kLanes - 1) / kLanes * kLanes;
    const size_t slots = std::min(kSlots, kTile / stride);
    size_t used = 0;
    for (size_t begin = 0; begin < source_.in.count;) {
      for (used = 0; used < slots && begin < source_.in.count; ++used) {
        const size_t count = std::min(format_.block, source_.in.count - begin);
        blocks[used] =
            Swap(blocks[used], begin, count, z_ + used * stride, slots + 1, lanes_[used]);
        begin += count;
      }
      for (size_t k = 0; k < used; ++k) SetScale(z_ + k * stride, lanes_[k], blocks[k]);
    }
    for (size_t k = 0; k < slots; ++k) Swap(blocks[k], 0, 0, z_ + k * stride, 0, lanes_[k]);
  }

  // Encodes a block while another one, which may be empty, takes its place.
  HWY_INLINE Block Swap(const Block& before, size_t begin, size_t count, float* z,
                        size_t mask_count, StatisticLanes& lanes) {
    const uint8_t* mask = count == 0 ? nullptr : TakeMask(begin, count, mask_count);
    lanes.Clear(statistic_);
    const size_t longer = std::max(before.count, count);
    for (size_t offset = 0; offset < longer; offset += kChunk) {
      if (offset < before.count) {
        Emit(before.scale, before.mask, before.begin, offset,
             std::min(kChunk, before.count - offset), z + offset);
      }
      if (offset < count) {
        Read(readers_.read, mask, begin, offset, std::min(kChunk, count - offset), z + offset,
             lanes);
      }
    }
    return {begin, count, mask, {}};
  }

  HWY_INLINE void SetScale(const float* z, const StatisticLanes& lanes, Block& block) {
    LowBitStatistics statistics =
        StatisticsOf(statistic_, lanes, Participants(block.mask, block.count));
    if (statistic_ == Statistic::kSquares) {
      const float narrow = TreeSum(lanes.squares);
      statistics.sum_of_squares = narrow;
      if (HWY_UNLIKELY(!IsSafeSum(narrow))) {
        WideSum wide;
        wide.Add(z, block.count, ScaleRule::kL2);
        TakeWide(narrow, wide, statistics);
      }
    }
    block.scale = Send(block.begin, block.count, statistics);
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
          Read(read, mask, tile, offset, chunk_count, z_, lanes);
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
                                HWY_ATTR { Emit(scale, mask, tile, offset, chunk_count, z_); });
  }

  // Returns a padded copy, which is valid until this has been called `mask_count` times more.
  HWY_INLINE const uint8_t* TakeMask(size_t begin, size_t count, size_t mask_count) {
    if (source_.in.mask == nullptr) return nullptr;
    const size_t bytes = BitBytes(std::min(format_.block, kTile)) + kBitPadding;
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
                       size_t count, float* z, StatisticLanes& lanes) {
    TileInput chunk = source_.ChunkAt(begin + offset, count);
    chunk.mask = mask == nullptr ? nullptr : mask + offset / 8;
    read(chunk, z, lanes);
  }

  HWY_INLINE void Emit(const BlockScale& scale, const uint8_t* mask, size_t begin, size_t offset,
                       size_t count, const float* z) {
    if (HWY_UNLIKELY(!scale.is_finite)) return;
    ChunkDraws draws;
    const size_t first = begin + offset;
    const bool has_draws = format_.codec == LowBitCodec::kInt8Stochastic;
    const ChunkOutput chunk = {
        .block = scale,
        .mask = mask == nullptr ? nullptr : mask + offset / 8,
        .draws = has_draws ? FillDraws(draws_, first, count, draws) : nullptr,
        .count = count,
        .residual = At(source_.in.residual_out, source_.in.residual_type, first),
        .value_type = source_.ValueType(),
        .codes = out_.codes + first * CodeBits(format_.codec) / 8,
        .are_codes_streamed = are_codes_streamed_};
    if (!emit_(chunk, z)) result_.is_finite = false;
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
  LowBitResult result_;
  alignas(64) float z_[kTile];
  StatisticLanes lanes_[kSlots];
  uint8_t masks_[2 * (kTile / 8 + kBitPadding)];  // two of a tile, or more of shorter blocks
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
