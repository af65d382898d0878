// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Sums and masks of whole tensors.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sums.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/optimizer.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

TileSweeps ChooseSweeps(DataType type, ScaleRule rule) {
  switch (type) {
    case DataType::kF32:
      return SweepsOf<DataType::kF32, Residual::kNone>(false, rule);
    case DataType::kF16:
      return SweepsOf<DataType::kF16, Residual::kNone>(false, rule);
    case DataType::kBf16:
      return SweepsOf<DataType::kBf16, Residual::kNone>(false, rule);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return {};
}

double SumInBlocks(const void* values, DataType type, size_t piece_count, ScaleRule rule) {
  const TileSweeps sweeps = ChooseSweeps(type, rule);
  alignas(64) float z[kTile];
  TileBits signs;  // not used
  SumLanes lanes;
  double sum = 0;
  for (size_t begin = 0; begin < piece_count; begin += kTile) {
    const size_t count = std::min(kTile, piece_count - begin);
    const TileInput tile = {.input = static_cast<const char*>(values) + begin * BytesOf(type),
                            .residual = nullptr,
                            .mask = nullptr,
                            .count = count};
    lanes.Clear();
    sweeps.sum(tile, nullptr, lanes.lane, signs.bytes, nullptr);
    const float narrow = TreeSum(lanes);
    if (IsSafeSum(narrow)) {
      sum += narrow;
    } else {
      WideSum wide;
      sweeps.load(tile, z, nullptr, nullptr, nullptr);
      wide.Add(z, count, rule);
      sum += ChooseSumOf(narrow, wide, Residual::kNone).sum;
    }
  }
  return sum;
}

}  // namespace

double SumOfSquares(const void* values, DataType type, size_t count) {
  return SumInBlocks(values, type, count, ScaleRule::kL2);
}

double SumOfMagnitudes(const void* values, DataType type, size_t count) {
  return SumInBlocks(values, type, count, ScaleRule::kL1);
}

size_t MaskOfNonzero(const float* v, size_t piece_count, uint8_t* mask) {
  TileBits bits;
  size_t nonzero_count = 0;
  for (size_t begin = 0; begin < piece_count; begin += kTile) {
    const size_t count = std::min(kTile, piece_count - begin);
    for (size_t i = 0; i < count; i += kLanes) {
      VF value;
      if (i + kLanes <= count) {
        value = hn::LoadU(kF32, v + begin + i);
      } else {
        alignas(64) float last[kLanes] = {};
        memcpy(last, v + begin + i, (count - i) * sizeof(float));
        value = hn::Load(kF32, last);
      }
      // "!=" would be wrong here: on some targets it is false for a NaN.
      const MF is_nonzero = hn::Not(hn::Eq(value, hn::Zero(kF32)));
      WriteBitsOf(is_nonzero, i, bits.bytes);
      nonzero_count += hn::CountTrue(kF32, is_nonzero);
    }
    memcpy(mask + begin / 8, bits.bytes, BitBytes(count));
  }
  return nonzero_count;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(SumOfMagnitudes);
HWY_EXPORT(MaskOfNonzero);

double SumOfSquares(const void* values, DataType type, size_t count) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(values, type, count);
}

double SumOfMagnitudes(const void* values, DataType type, size_t count) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(SumOfMagnitudes)(values, type, count);
}

size_t MaskOfNonzero(const float* v, size_t count, uint8_t* mask) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(MaskOfNonzero)(v, count, mask);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
