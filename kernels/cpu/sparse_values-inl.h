// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The values of one block of a sparse packet: written from numbers, and added to numbers.
// Per-target header.
#if defined(ONEBIT_KERNELS_CPU_SPARSE_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_SPARSE_VALUES_INL_H_
#undef ONEBIT_KERNELS_CPU_SPARSE_VALUES_INL_H_
#else
#define ONEBIT_KERNELS_CPU_SPARSE_VALUES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/reference/block_sum.h"
#include "kernels/reference/sparse_values.h"
#include "kernels/sparse.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

using reference::BitWriter;
using reference::CodeValues;
using reference::SplitSum;
using reference::TwoMagnitudes;

// The selected elements of a block.
struct alignas(64) SelectedValues {
  float value[kTile + kLanes];  // with zeros up to a whole vector
  uint16_t index[kTile + 1];
  size_t count = 0;
};

// The rule of reference::BlockSum for magnitudes. A sum of 0 is exact.
template <class MagnitudeAt>
HWY_INLINE double CompleteSum(const SumLanes& lanes, size_t count, const MagnitudeAt& at) {
  const float sum = TreeSum(lanes);
  if (HWY_LIKELY(sum == 0 || (std::isfinite(sum) && sum >= 0x1p-100f))) return sum;
  return reference::SumOfLanes<double>(count, ScaleRule::kL1, at);
}

HWY_INLINE SplitSum SplitAt(float threshold, const SelectedValues& selected) {
  SumLanes high, low;
  high.Clear();
  low.Clear();
  const VF bound = hn::Set(kF32, threshold);
  SplitSum split;
  for (size_t j = 0; j < selected.count; j += kLanes) {
    const VF magnitude = hn::Abs(hn::Load(kF32, selected.value + j));
    const MF is_high = hn::Gt(magnitude, bound);
    float* const high_lane = high.lane + j % kSumLanes;
    float* const low_lane = low.lane + j % kSumLanes;
    hn::Store(hn::Add(hn::Load(kF32, high_lane), hn::IfThenElseZero(is_high, magnitude)), kF32,
              high_lane);
    hn::Store(hn::Add(hn::Load(kF32, low_lane), hn::IfThenZeroElse(is_high, magnitude)), kF32,
              low_lane);
    split.high_count += hn::CountTrue(kF32, is_high);
  }
  const auto sum_of = [&](const SumLanes& lanes, bool wants_high) {
    return CompleteSum(lanes, selected.count, [&](size_t j) {
      const float magnitude = std::fabs(selected.value[j]);
      return (magnitude > threshold) == wants_high ? magnitude : 0.0f;
    });
  };
  split.high = sum_of(high, true);
  split.low = sum_of(low, false);
  return split;
}

// Writes the parts of a packet, block after block.
class SparsePacketWriter {
 public:
  SparsePacketWriter(SparseFormat format, size_t count, void* packet)
      : format_(format),
        magnitudes_(static_cast<uint8_t*>(packet)),
        indices_(magnitudes_ + format.IndexOffset(count)),
        codes_(magnitudes_ + format.ValueOffset(count)),
        values_(magnitudes_ + format.ValueOffset(count)) {
    ClearPadding(format.MagnitudeBytes(count), format.IndexOffset(count));
    ClearPadding(format.IndexOffset(count) + format.IndexBytes(count), format.ValueOffset(count));
  }

  // Writes a block, and replaces its values by those that receivers decode. Values of elements
  // that take no part are 0; `participants` is how many do.
  HWY_INLINE void Write(bool is_finite, size_t participants, SelectedValues& selected) {
    if (!format_.codec.is_random) WriteIndices(selected);
    if (format_.codec.values == SparseValues::kF32) {
      if (!is_finite) Fill(selected);
      memcpy(values_, selected.value, selected.count * sizeof(float));
      values_ += selected.count * sizeof(float);
      return;
    }
    TwoMagnitudes magnitudes = {reference::kNanMagnitude, reference::kNanMagnitude, 0};
    if (HWY_LIKELY(is_finite)) {
      magnitudes = reference::FindMagnitudes(
          participants, [&](float threshold) HWY_ATTR { return SplitAt(threshold, selected); });
    }
    memcpy(magnitudes_, &magnitudes, kSparseMagnitudeBytes);
    magnitudes_ += kSparseMagnitudeBytes;
    if (HWY_UNLIKELY(!is_finite)) std::fill_n(selected.value, selected.count, 0.0f);
    WriteCodes(magnitudes, selected);
  }

  void Finish() {
    indices_.Finish();
    codes_.Finish();
  }

 private:
  void ClearPadding(size_t begin, size_t end) {
    if (begin != end) memset(magnitudes_ + begin, 0, end - begin);
  }

  HWY_INLINE void WriteIndices(const SelectedValues& selected) {
    size_t j = 0;
    for (; j + 2 <= selected.count; j += 2) {
      indices_.Write(selected.index[j] | unsigned{selected.index[j + 1]} << kSparseIndexBits,
                     2 * kSparseIndexBits);
    }
    if (j != selected.count) indices_.Write(selected.index[j], kSparseIndexBits);
  }

  HWY_INLINE void WriteCodes(const TwoMagnitudes& magnitudes, SelectedValues& selected) {
    const VF high = hn::Set(kF32, reference::FloatOfBf16(magnitudes.high));
    const VF low = hn::Set(kF32, reference::FloatOfBf16(magnitudes.low));
    const VF threshold = hn::Set(kF32, magnitudes.threshold);
    for (size_t j = 0; j < selected.count; j += kLanes) {
      const VF value = hn::Load(kF32, selected.value + j);
      const MF is_high = hn::Gt(hn::Abs(value), threshold);
      const MF is_negative = hn::Lt(value, hn::Zero(kF32));
      const VF sent = hn::IfThenElse(is_high, high, low);
      hn::Store(hn::IfThenElse(is_negative, hn::Neg(sent), sent), kF32, selected.value + j);
      const size_t count = HWY_MIN(kLanes, selected.count - j);
      const uint32_t codes = Spread(BitsOf(is_high)) | Spread(BitsOf(is_negative)) << 1;
      codes_.Write(codes & static_cast<uint32_t>((uint64_t{1} << 2 * count) - 1),
                   static_cast<unsigned>(2 * count));
    }
  }

  // Moves bit i to bit 2 i, of up to 16 bits.
  static HWY_INLINE uint32_t Spread(uint64_t bits) {
    auto word = static_cast<uint32_t>(bits);
    word = (word | word << 8) & 0x00FF00FF;
    word = (word | word << 4) & 0x0F0F0F0F;
    word = (word | word << 2) & 0x33333333;
    return (word | word << 1) & 0x55555555;
  }

  static void Fill(SelectedValues& selected) {
    for (size_t j = 0; j < selected.count; ++j) {
      memcpy(selected.value + j, &reference::kNanValue, sizeof(float));
    }
  }

  const SparseFormat format_;
  uint8_t* magnitudes_;
  BitWriter indices_;
  BitWriter codes_;
  uint8_t* values_;
};

// Adds to y what a packet has of block number `block`, of which `selected` elements were sent.
// `drawn` has their indices if the packet has none. Returns whether all values are numbers.
inline bool AddBlock(const uint8_t* packet, SparseFormat format, size_t count, size_t block,
                     size_t selected, const uint16_t* drawn, float* y) {
  const size_t first = block * format.codec.k;  // among all elements sent
  const uint8_t* const indices = packet + format.IndexOffset(count);
  const uint8_t* const codes = packet + format.ValueOffset(count);
  const auto index_of = [&](size_t j) HWY_ATTR {
    return drawn != nullptr ? drawn[j] : reference::IndexAt(indices, first + j);
  };
  if (format.codec.values == SparseValues::kF32) {
    bool is_finite = true;
    for (size_t j = 0; j < selected; ++j) {
      float value;
      memcpy(&value, codes + (first + j) * sizeof(value), sizeof(value));
      is_finite = is_finite && value == value;
      y[index_of(j)] += value;
    }
    return is_finite;
  }
  uint16_t magnitudes[2];
  memcpy(magnitudes, packet + block * kSparseMagnitudeBytes, kSparseMagnitudeBytes);
  const CodeValues value_of(magnitudes[0], magnitudes[1]);
  size_t j = 0;
  if (drawn == nullptr && first % 4 == 0) {
    // Four indices have six bytes, and four codes one.
    const uint8_t* from = indices + first / 2 * 3;
    const uint8_t* code = codes + first / 4;
    for (; j + 4 <= selected; j += 4, from += 6, ++code) {
      uint32_t lower;
      uint16_t upper;
      memcpy(&lower, from, sizeof(lower));
      memcpy(&upper, from + sizeof(lower), sizeof(upper));
      const uint64_t word = lower | uint64_t{upper} << 32;
      y[word & 0xFFF] += value_of.value[*code & 3];
      y[word >> 12 & 0xFFF] += value_of.value[*code >> 2 & 3];
      y[word >> 24 & 0xFFF] += value_of.value[*code >> 4 & 3];
      y[word >> 36] += value_of.value[*code >> 6];
    }
  }
  for (; j < selected; ++j) {
    y[index_of(j)] += value_of.value[reference::SparseCodeAt(codes, first + j)];
  }
  return value_of.value[0] == value_of.value[0];
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
