// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Blocks to scales, signs and residuals; the same for the worker (z from the input) and the server
// (y from packets), which differ in their `Source`:
//   in                    CompressInput or ReduceInput
//   Load(...)             LoadTile for a part of the piece
//   SentScale(a)          the scale that is sent for a block whose scale is a
//   LostScale(t)          what the residual is formed with when t was sent
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
#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

inline Sum SumOf(ScaleRule rule) { return rule == ScaleRule::kL2 ? Sum::kL2 : Sum::kL1; }

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

// The tile in work, on the stack: z and the mask, both padded.
struct TileScratch {
  alignas(64) float z[kTile];
  TileBits mask_bits;
  const uint8_t* mask;  // mask_bits or null

  void SetMask(const uint8_t* piece_mask, size_t begin, size_t count) {
    mask = nullptr;
    if (piece_mask == nullptr) return;
    CopyBitsPadded(piece_mask + begin / 8, count, mask_bits.bytes);
    mask = mask_bits.bytes;
  }
};

template <class Source>
HWY_INLINE void ReadTile(const Source& source, size_t begin, size_t count, float* lanes,
                         TileScratch& scratch) {
  scratch.SetMask(source.in.mask, begin, count);
  source.Load(begin, count, scratch.mask, lanes, scratch.z);
}

// First sweep over a block: its sum and the number of its elements that take part. Leaves the last
// (for short blocks: the only) tile in `scratch`.
template <class Source>
HWY_INLINE BlockSum ReadBlock(const Source& source, size_t begin, size_t count,
                              TileScratch& scratch, size_t* participants) {
  SumLanes lanes = {};
  *participants = 0;
  for (size_t offset = 0; offset < count; offset += kTile) {
    const size_t tile_count = std::min(kTile, count - offset);
    ReadTile(source, begin + offset, tile_count, lanes.lane, scratch);
    *participants += scratch.mask == nullptr ? tile_count : CountBits(scratch.mask, tile_count);
  }
  const float narrow = TreeSum(lanes);
  if (HWY_LIKELY(IsSafeSum(narrow))) return {narrow, true};
  WideSum wide;
  for (size_t offset = 0; offset < count; offset += kTile) {
    const size_t tile_count = std::min(kTile, count - offset);
    if (count > kTile) ReadTile(source, begin + offset, tile_count, nullptr, scratch);
    wide.Add(scratch.z, tile_count, SumOf(source.in.rule));
  }
  return ChooseSumOf(narrow, wide, ResidualOf(source.in));
}

// Second sweep over the tile in `scratch`.
template <class In>
HWY_INLINE void WriteTile(const In& in, size_t begin, size_t count, float scale, EmitTile emit,
                          const TileScratch& scratch, uint8_t* bits) {
  emit({.z = scratch.z,
        .mask = scratch.mask,
        .count = count,
        .scale = scale,
        .bits = bits == nullptr ? nullptr : bits + begin / 8,
        .residual = At(in.residual_out, in.residual_type, begin)});
}

template <class In>
bool IsStreamed(const In& in) {
  return ShouldStream(in.residual_out, in.count * BytesOf(in.residual_type));
}

template <class Source>
bool EncodeBlocks(const Source& source, size_t block, float* scales, uint8_t* bits) {
  const auto& in = source.in;
  const bool is_streamed = IsStreamed(in);
  const EmitTile emit = ChooseEmitTile(ResidualOf(in), in.mask != nullptr, true, is_streamed);
  TileScratch scratch;
  bool is_finite = true;
  for (size_t begin = 0; begin < in.count; begin += block) {
    const size_t count = std::min(block, in.count - begin);
    size_t participants;
    const BlockSum sum = ReadBlock(source, begin, count, scratch, &participants);
    const float sent = source.SentScale(ScaleOfSum(sum.sum, participants, in.rule));
    scales[begin / block] = sent;
    is_finite = is_finite && sum.is_in_range && std::isfinite(sent);
    const float lost = source.LostScale(sent);
    for (size_t offset = 0; offset < count; offset += kTile) {
      const size_t tile_count = std::min(kTile, count - offset);
      if (count > kTile) ReadTile(source, begin + offset, tile_count, nullptr, scratch);
      WriteTile(in, begin + offset, tile_count, lost, emit, scratch, bits);
    }
  }
  if (is_streamed) hwy::FlushStream();
  return is_finite;
}

template <class Source>
void EncodeSigns(const Source& source, uint8_t* bits, TensorSum* sum) {
  const auto& in = source.in;
  TileScratch scratch;
  for (size_t begin = 0; begin < in.count; begin += kTensorSumBlock) {
    const size_t count = std::min(kTensorSumBlock, in.count - begin);
    size_t participants;
    const BlockSum block = ReadBlock(source, begin, count, scratch, &participants);
    sum->element_count += participants;
    if (block.is_in_range) {
      sum->sum += block.sum;
    } else {
      sum->is_finite = false;
    }
    WriteTile(in, begin, count, 0, &EmitSignsOnly, scratch, bits);
  }
}

template <class Source>
void EncodeResidual(const Source& source, float scale) {
  const auto& in = source.in;
  if (in.residual_out == nullptr) return;
  const bool is_streamed = IsStreamed(in);
  const EmitTile emit = ChooseEmitTile(ResidualOf(in), in.mask != nullptr, false, is_streamed);
  TileScratch scratch;
  for (size_t begin = 0; begin < in.count; begin += kTile) {
    const size_t count = std::min(kTile, in.count - begin);
    ReadTile(source, begin, count, nullptr, scratch);
    WriteTile(in, begin, count, scale, emit, scratch, nullptr);
  }
  if (is_streamed) hwy::FlushStream();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
