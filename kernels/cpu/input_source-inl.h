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
  const CompressInput& in;
  LoadTile load;
  LoadTile load_and_sum;

  explicit InputSource(const CompressInput& input)
      : in(input),
        load(ChooseLoadTile(in.input_type, ResidualOf(in), in.mask != nullptr, Sum::kNone)),
        load_and_sum(
            ChooseLoadTile(in.input_type, ResidualOf(in), in.mask != nullptr, SumOf(in.rule))) {}

  void Load(size_t begin, size_t count, const uint8_t* mask, float* lanes, float* z) const {
    const TileInput tile = {.input = At(in.input, in.input_type, begin),
                            .residual = At(in.residual_in, in.residual_type, begin),
                            .mask = mask,
                            .count = count};
    (lanes == nullptr ? load : load_and_sum)(tile, lanes, z);
  }

  float SentScale(float a) const { return a; }
  float LostScale(float t) const { return t; }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
