// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Converts blocks to scales, signs and residuals. The code is the same for the worker (z from the
// input) and the server (y from packets), which differ in their `Source`:
//   in                           CompressInput or ReduceInput
//   sweeps                       TileSweeps for its types
//   kPart                        elements of a tile that are swept at once
//   TileAt(begin, count, space)  TileInput of a part of the piece, without mask; may put the input
//                                into `space`, kComputedPart floats
//   SentScale(a)                 the scale that is sent for a block whose scale is a
//   LostScale(t)                 when t was sent, z -+ this is lost
// Per-target header.
#if defined(ONEBIT_KERNELS_CPU_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_ENCODE_INL_H_
#undef ONEBIT_KERNELS_CPU_ENCODE_INL_H_
#else
#define ONEBIT_KERNELS_CPU_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/emit-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

template <class In>
Residual ResidualOf(const In& in) {
  if (in.residual_in == nullptr) return Residual::kNone;
  return in.residual_type == DataType::kBf16 ? Residual::kBf16 : Residual::kF32;
}

inline const void* At(const void* array, DataType type, size_t i) {
  return array == nullptr ? nullptr : static_cast<const char*>(array) + i * BytesOf(type);
}
inline void* At(void* array, DataType type, size_t i) {
  return array == nullptr ? nullptr : static_cast<char*>(array) + i * BytesOf(type);
}

// A source that computes its input does so in parts that leave room in the first-level cache. They
// are no longer than what a sweep fetches ahead: memory is busy while a part is computed.
inline constexpr size_t kComputedPart = kFetchAheadBytes / sizeof(float);
static_assert(kTile % kComputedPart == 0 && kComputedPart % kSumLanes == 0);

// Buffers of the current tile, on the stack.
struct TileScratch {
  alignas(64) float z[kTile];
  alignas(64) float space[kComputedPart];  // for the source
  alignas(64) float space_before[kComputedPart];
  TileBits mask_bits[2];  // of this tile and of the previous one
  size_t parity = 0;
  const uint8_t* mask = nullptr;  // padded mask of the tile in z, or null

  void SetMask(const uint8_t* piece_mask, size_t begin, size_t count) {
    if (piece_mask == nullptr) return;
    parity ^= 1;
    CopyBitsPadded(piece_mask + begin / 8, count, mask_bits[parity].bytes);
    mask = mask_bits[parity].bytes;
  }
};

// The results of a sweep over a block.
struct BlockLanes {
  SumLanes lanes;
  size_t participants;

  HWY_INLINE void Clear() {
    lanes.Clear();
    participants = 0;
  }
};

// A tile of the previous block, whose residual is written by a sweep over the next one.
struct TileBefore {
  size_t begin;
  TileOutput output;
};

template <class Source>
HWY_INLINE void SweepTile(const Source& source, LoadTile sweep, size_t begin, size_t count,
                          TileScratch& scratch, BlockLanes* block, uint8_t* bits,
                          const TileBefore* before) {
  const auto& in = source.in;
  scratch.SetMask(in.mask, begin, count);
  if (block != nullptr) {
    block->participants += scratch.mask == nullptr ? count : CountBits(scratch.mask, count);
  }
  for (size_t offset = 0; offset < count; offset += Source::kPart) {
    const size_t part_count = std::min(Source::kPart, count - offset);
    const auto part_of = [&](size_t tile_begin, const uint8_t* mask, float* space) HWY_ATTR {
      TileInput part = source.TileAt(tile_begin + offset, part_count, space);
      part.mask = mask == nullptr ? nullptr : mask + offset / 8;
      return part;
    };
    TileOutput output = {};
    if (before != nullptr) {
      output = before->output;
      output.residual = At(output.residual, in.residual_type, offset);
      if (sweep == source.sweeps.sum_and_reread) {
        output.again = part_of(before->begin, output.mask, scratch.space_before);
      }
      if (output.mask != nullptr) output.mask += offset / 8;
    }
    sweep(part_of(begin, scratch.mask, scratch.space), scratch.z + offset,
          block == nullptr ? nullptr : block->lanes.lane,
          block == nullptr ? nullptr : bits + (begin + offset) / 8, &output);
  }
}

// Computes the z of a tile again.
template <class Source>
HWY_INLINE void ReloadTile(const Source& source, size_t begin, size_t count, TileScratch& scratch) {
  SweepTile(source, source.sweeps.load, begin, count, scratch, nullptr, nullptr, nullptr);
}

// First sweep over a block. If z is kept, the block is a tile.
template <class Source>
HWY_INLINE void ReadBlock(const Source& source, size_t begin, size_t count, bool is_kept,
                          TileScratch& scratch, BlockLanes& block, uint8_t* bits) {
  const LoadTile sweep = is_kept ? source.sweeps.sum_and_keep : source.sweeps.sum;
  block.Clear();
  for (size_t offset = 0; offset < count; offset += kTile) {
    SweepTile(source, sweep, begin + offset, std::min(kTile, count - offset), scratch, &block, bits,
              nullptr);
  }
}

// The sum of the block that was just read.
template <class Source>
HWY_INLINE BlockSum SumOfBlock(const Source& source, size_t begin, size_t count, bool is_kept,
                               const BlockLanes& block, TileScratch& scratch) {
  const float narrow = TreeSum(block.lanes);
  if (HWY_LIKELY(IsSafeSum(narrow))) return {narrow, true};
  WideSum wide;
  for (size_t offset = 0; offset < count; offset += kTile) {
    const size_t tile_count = std::min(kTile, count - offset);
    if (!is_kept) ReloadTile(source, begin + offset, tile_count, scratch);
    wide.Add(scratch.z, tile_count, source.in.rule);
  }
  return ChooseSumOf(narrow, wide, ResidualOf(source.in));
}

template <class In>
HWY_INLINE TileOutput OutputOf(const In& in, size_t begin, size_t count, float scale,
                               const TileScratch& scratch) {
  return {.residual = At(in.residual_out, in.residual_type, begin),
          .mask = scratch.mask,
          .count = count,
          .scale = scale};
}

template <class In>
bool IsStreamed(const In& in) {
  return ShouldStream(in.residual_out, in.count * BytesOf(in.residual_type));
}

// Returns null if residuals are not kept.
template <class In>
EmitTile EmitOf(const In& in, bool is_streamed) {
  if (in.residual_out == nullptr) return nullptr;
  return ChooseEmitTile(ResidualOf(in), in.mask != nullptr, is_streamed);
}

template <class Source>
bool EncodeBlocks(const Source& source, size_t block, float* scales, uint8_t* bits) {
  const auto& in = source.in;
  const bool is_streamed = IsStreamed(in);
  const EmitTile emit = EmitOf(in, is_streamed);
  const bool can_swap = emit != nullptr && is_streamed && block % kSumLanes == 0;
  TileScratch scratch;
  bool is_finite = true;
  BlockLanes lanes;
  bool is_read = false;  // the sweep over the previous block has read this one
  for (size_t begin = 0; begin < in.count; begin += block) {
    const size_t count = std::min(block, in.count - begin);
    const bool is_kept = emit != nullptr && count <= kTile;
    if (!is_read) ReadBlock(source, begin, count, is_kept, scratch, lanes, bits);
    is_read = false;
    const BlockSum sum = SumOfBlock(source, begin, count, is_kept, lanes, scratch);
    const float sent = source.SentScale(ScaleOfSum(sum.sum, lanes.participants, in.rule));
    scales[begin / block] = sent;
    is_finite = is_finite && sum.is_in_range && std::isfinite(sent);
    if (emit == nullptr) continue;
    const float lost = source.LostScale(sent);
    const size_t next = begin + count;
    if (can_swap && in.count - next >= block) {
      const auto& sweeps = source.sweeps;
      lanes.Clear();
      for (size_t offset = 0; offset < block; offset += kTile) {
        const size_t tile_count = std::min(kTile, block - offset);
        if (!is_kept) scratch.SetMask(in.mask, begin + offset, tile_count);
        const TileBefore before = {begin + offset,
                                   OutputOf(in, begin + offset, tile_count, lost, scratch)};
        SweepTile(source, is_kept ? sweeps.sum_and_swap : sweeps.sum_and_reread, next + offset,
                  tile_count, scratch, &lanes, bits, &before);
      }
      is_read = true;
      continue;
    }
    for (size_t offset = 0; offset < count; offset += kTile) {
      const size_t tile_count = std::min(kTile, count - offset);
      if (!is_kept) ReloadTile(source, begin + offset, tile_count, scratch);
      emit(OutputOf(in, begin + offset, tile_count, lost, scratch), scratch.z);
    }
  }
  if (is_streamed) hwy::FlushStream();
  return is_finite;
}

template <class Source>
void EncodeSigns(const Source& source, uint8_t* bits, TensorSum* sum) {
  const auto& in = source.in;
  TileScratch scratch;
  BlockLanes lanes;
  for (size_t begin = 0; begin < in.count; begin += kTensorSumBlock) {
    const size_t count = std::min(kTensorSumBlock, in.count - begin);
    ReadBlock(source, begin, count, false, scratch, lanes, bits);
    const BlockSum block = SumOfBlock(source, begin, count, false, lanes, scratch);
    sum->element_count += lanes.participants;
    if (block.is_in_range) {
      sum->sum += block.sum;
    } else {
      sum->is_finite = false;
    }
  }
}

template <class Source>
void EncodeResidual(const Source& source, float scale) {
  const auto& in = source.in;
  const bool is_streamed = IsStreamed(in);
  const EmitTile emit = EmitOf(in, is_streamed);
  if (emit == nullptr) return;
  TileScratch scratch;
  for (size_t begin = 0; begin < in.count; begin += kTile) {
    const size_t count = std::min(kTile, in.count - begin);
    ReloadTile(source, begin, count, scratch);
    emit(OutputOf(in, begin, count, scale, scratch), scratch.z);
  }
  if (is_streamed) hwy::FlushStream();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
