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

  // Writes a block, and replaces its values by those that receivers decode. `takes_part` tells by
  // the position among the selected elements; `participants` is how many do.
  template <class TakesPart>
  HWY_INLINE void Write(bool is_finite, size_t participants, const TakesPart& takes_part,
                        SelectedValues& selected) {
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
    const CodeValues value_of(magnitudes.high, magnitudes.low);
    for (size_t j = 0; j < selected.count; ++j) {
      const unsigned code = is_finite && takes_part(j)
                                ? reference::CodeOf(selected.value[j], magnitudes.threshold)
                                : 0;
      codes_.Write(code, 2);
      selected.value[j] = value_of.value[code];
    }
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
  const auto index_of = [&](size_t j) {
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
  for (size_t j = 0; j < selected; ++j) {
    y[index_of(j)] += value_of.value[reference::SparseCodeAt(codes, first + j)];
  }
  return value_of.value[0] == value_of.value[0];
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
