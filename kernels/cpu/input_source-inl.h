// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A `Source` (encode-inl.h) whose z is an array plus a residual. Per-target header.
#if defined(ONEBIT_KERNELS_CPU_INPUT_SOURCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEBIT_KERNELS_CPU_INPUT_SOURCE_INL_H_
#undef ONEBIT_KERNELS_CPU_INPUT_SOURCE_INL_H_
#else
#define ONEBIT_KERNELS_CPU_INPUT_SOURCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

struct InputSource {
  static constexpr size_t kPart = kTile;

  const CompressInput& in;
  TileSweeps sweeps;

  explicit InputSource(const CompressInput& input) : in(input), sweeps(Choose(input)) {}

  TileInput TileAt(size_t begin, size_t count, float*) const {
    return {.input = At(in.input, in.input_type, begin),
            .residual = At(in.residual_in, in.residual_type, begin),
            .mask = nullptr,
            .count = count};
  }

  float SentScale(float a) const { return RoundTo(in.scale_type, a); }
  float LostScale(float t) const { return t; }

  static TileSweeps Choose(const CompressInput& in) {
    const Residual residual = ResidualOf(in);
    const bool is_masked = in.mask != nullptr;
    switch (in.input_type) {
      case DataType::kF32:
        return SweepsOf<DataType::kF32>(residual, is_masked, in.rule);
      case DataType::kF16:
        return SweepsOf<DataType::kF16>(residual, is_masked, in.rule);
      case DataType::kBf16:
        return SweepsOf<DataType::kBf16>(residual, is_masked, in.rule);
        ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
    }
    return {};
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
