// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The worker's compression of short blocks. A scale takes longer than the elements of a short
// block, nearly all of it waiting for one operation after the other. So the scales of a group of
// blocks are computed together, and the sweep over a group writes the residuals of the group
// before. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_SHORT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_SHORT_BLOCKS_INL_H_
#undef ONEBIT_KERNELS_CPU_SHORT_BLOCKS_INL_H_
#else
#define ONEBIT_KERNELS_CPU_SHORT_BLOCKS_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/input_source-inl.h"
#include "kernels/cpu/sum-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

// Blocks of a group.
inline constexpr size_t kGroup = 16;

// Counts the leading elements of a piece that whole groups cover.
inline size_t CountInGroups(const CompressInput& in, size_t block) {
  const bool is_short = block == kBlockMultiple || (block % kSumLanes == 0 && block <= 256);
  if (kLanes < 4 || !is_short || in.mask != nullptr) return 0;
  return in.count / (kGroup * block) * (kGroup * block);
}

#if HWY_TARGET == HWY_SCALAR

inline bool EncodeGroups(const CompressInput&, size_t, size_t, float*, uint8_t*) { return true; }

#else

// The residuals of a group.
struct GroupOutput {
  void* residual = nullptr;  // null if there are none to write
  const float* scales = nullptr;
  bool is_streamed = false;
};

// Sweeps over a group: keeps z, if there is a residual, and writes the signs and the sum of each
// block. z holds the group before, whose residuals go to `before`.
using SweepGroup = void (*)(const TileInput& group, size_t block, float* z, float* sums,
                            uint8_t* bits, const GroupOutput& before);

using DF4 = hn::CappedTag<float, 4>;
inline constexpr DF4 kF32x4{};

// The first steps of the tree of sums, down to four lanes.
template <class D>
HWY_INLINE hn::Vec<DF4> SumToFour(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumToFour(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

template <size_t kCount>
HWY_INLINE VF SumOfVectors(const VF* from) {
  VF sum[kCount];
  HWY_UNROLL(16)
  for (size_t k = 0; k < kCount; ++k) sum[k] = from[k];
  HWY_UNROLL(16)
  for (size_t width = kCount / 2; width >= 1; width /= 2) {
    HWY_UNROLL(16)
    for (size_t k = 0; k < width; ++k) sum[k] = hn::Add(sum[k], sum[k + width]);
  }
  return sum[0];
}

// The last steps of the tree, of kGroup blocks.
HWY_INLINE void SumFours(const float* fours, float* sums) {
  for (size_t k = 0; k < kGroup; k += 4) {
    const auto at = [&](size_t block)
                        HWY_ATTR { return hn::Load(kF32x4, fours + 4 * (k + block)); };
    const auto halves = [&](size_t block) HWY_ATTR {
      return hn::Add(hn::ConcatLowerLower(kF32x4, at(block + 1), at(block)),
                     hn::ConcatUpperUpper(kF32x4, at(block + 1), at(block)));
    };
    const auto first = halves(0), second = halves(2);
    hn::Store(hn::Add(hn::ConcatEven(kF32x4, second, first), hn::ConcatOdd(kF32x4, second, first)),
              kF32x4, sums + k);
  }
}

template <DataType kInput, Residual kResidual, Sum kSum>
HWY_NOINLINE void SweepGroupAs(const TileInput& group_in_memory, size_t block, float* z,
                               float* sums, uint8_t* bits, const GroupOutput& before_in_memory) {
  constexpr size_t kColumns = kSumLanes / kLanes;
  // Copies stay in registers across KeepOrder().
  const TileInput group = group_in_memory;
  const GroupOutput before = before_in_memory;
  const TileOutput output = {.residual = before.residual, .mask = nullptr};
  const bool is_half_row = block == kSumLanes / 2;
  alignas(64) float fours[kGroup * 4];
  float* four = fours;
  VF sum[kColumns];
  for (size_t row = 0; row < group.count; row += kSumLanes) {
    if (row % block == 0) {
      HWY_UNROLL(16)
      for (size_t k = 0; k < kColumns; ++k) sum[k] = hn::Zero(kF32);
    }
    HWY_UNROLL(16)
    for (size_t k = 0; k < kColumns; ++k) {
      const size_t i = row + k * kLanes;
      FetchAhead<kInput>(group.input, i);
      if (kResidual != Residual::kNone) FetchAhead<kResidualType<kResidual>>(group.residual, i);
      const VF loaded = LoadZ<kInput, kResidual, false>(group, i);
      if constexpr (kResidual != Residual::kNone) {
        if (before.residual != nullptr) {
          const VF leaving = hn::Load(kF32, z + i);
          const VF scale = hn::Set(kF32, before.scales[i / block]);
          if (before.is_streamed) {
            WriteLoss<kResidual, false, true>(leaving, scale, output, i);
          } else {
            WriteLoss<kResidual, false, false>(leaving, scale, output, i);
          }
        }
        hn::Store(loaded, kF32, z + i);
      }
      sum[k] = AddTerm<kSum>(sum[k], loaded);
      WriteBitsOf(IsNegative(loaded), i, bits);
      KeepOrder();
    }
    // The upper half of the lanes of 64 elements is 0.
    if (is_half_row) {
      hn::Store(SumToFour(kF32, SumOfVectors<kColumns / 2>(sum)), kF32x4, four);
      hn::Store(SumToFour(kF32, SumOfVectors<kColumns / 2>(sum + kColumns / 2)), kF32x4, four + 4);
      four += 8;
    } else if ((row + kSumLanes) % block == 0) {
      hn::Store(SumToFour(kF32, SumOfVectors<kColumns>(sum)), kF32x4, four);
      four += 4;
    }
  }
  SumFours(fours, sums);
}

template <DataType kInput>
SweepGroup ChooseSweepGroupAs(Residual residual, ScaleRule rule) {
  const bool is_l2 = rule == ScaleRule::kL2;
  switch (residual) {
    case Residual::kNone:
      return is_l2 ? &SweepGroupAs<kInput, Residual::kNone, Sum::kL2>
                   : &SweepGroupAs<kInput, Residual::kNone, Sum::kL1>;
    case Residual::kF32:
      return is_l2 ? &SweepGroupAs<kInput, Residual::kF32, Sum::kL2>
                   : &SweepGroupAs<kInput, Residual::kF32, Sum::kL1>;
    case Residual::kBf16:
      return is_l2 ? &SweepGroupAs<kInput, Residual::kBf16, Sum::kL2>
                   : &SweepGroupAs<kInput, Residual::kBf16, Sum::kL1>;
  }
  return nullptr;
}

inline SweepGroup ChooseSweepGroup(const CompressInput& in) {
  switch (in.input_type) {
    case DataType::kF32:
      return ChooseSweepGroupAs<DataType::kF32>(ResidualOf(in), in.rule);
    case DataType::kF16:
      return ChooseSweepGroupAs<DataType::kF16>(ResidualOf(in), in.rule);
    case DataType::kBf16:
      return ChooseSweepGroupAs<DataType::kBf16>(ResidualOf(in), in.rule);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
  return nullptr;
}

// The scales of kGroup sums, as ScaleOfSum computes one.
HWY_INLINE void ScalesOfSums(const float* sums, size_t block, ScaleRule rule, float* scales) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto count = hn::Set(d64, static_cast<double>(block));
  for (size_t k = 0; k < kGroup; k += hn::MaxLanes(d64)) {
    auto mean = hn::Div(hn::PromoteTo(d64, hn::Load(d32, sums + k)), count);
    if (rule == ScaleRule::kL2) mean = hn::Sqrt(mean);
    hn::Store(hn::DemoteTo(d32, mean), d32, scales + k);
  }
}

HWY_INLINE bool AreSafeSums(const float* sums) {
  bool are_safe = true;
  for (size_t k = 0; k < kGroup; ++k) are_safe &= IsSafeSum(sums[k]);
  return are_safe;
}

// Compresses `count` elements, whole groups. Returns whether every z and scale was finite.
inline bool EncodeGroups(const CompressInput& in, size_t block, size_t count, float* scales,
                         uint8_t* bits) {
  const InputSource source(in);
  const SweepGroup sweep = ChooseSweepGroup(in);
  const bool is_streamed = IsStreamed(in);
  const EmitTile emit = EmitOf(in, is_streamed);
  const size_t group = kGroup * block;
  alignas(64) float z[kTile];
  alignas(64) float sums[kGroup];
  alignas(64) float exact[kGroup];
  GroupOutput before = {.is_streamed = is_streamed};
  bool is_finite = true;
  for (size_t begin = 0; begin < count; begin += group) {
    const TileInput tile = source.TileAt(begin, group, nullptr);
    sweep(tile, block, z, sums, bits + begin / 8, before);
    ScalesOfSums(sums, block, in.rule, exact);
    if (HWY_UNLIKELY(!AreSafeSums(sums))) {
      if (ResidualOf(in) == Residual::kNone) source.sweeps.load(tile, z, nullptr, nullptr, nullptr);
      for (size_t k = 0; k < kGroup; ++k) {
        if (IsSafeSum(sums[k])) continue;
        WideSum wide;
        wide.Add(z + k * block, block, in.rule);
        const BlockSum sum = ChooseSumOf(sums[k], wide, ResidualOf(in));
        exact[k] = ScaleOfSum(sum.sum, block, in.rule);
        is_finite = is_finite && sum.is_in_range;
      }
    }
    float* sent = scales + begin / block;
    for (size_t k = 0; k < kGroup; ++k) {
      sent[k] = source.SentScale(exact[k]);
      is_finite = is_finite && std::isfinite(sent[k]);
    }
    if (emit == nullptr) continue;
    before.residual = At(in.residual_out, in.residual_type, begin);
    before.scales = sent;
  }
  if (emit != nullptr) {
    for (size_t k = 0; k < kGroup; ++k) {
      emit({.residual = At(before.residual, in.residual_type, k * block),
            .mask = nullptr,
            .count = block,
            .scale = before.scales[k]},
           z + k * block);
    }
    if (is_streamed) hwy::FlushStream();
  }
  return is_finite;
}

#endif

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
