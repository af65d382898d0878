// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dense.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include <hwy/cache_control.h>
#include "kernels/cpu/emit-inl.h"
#include "kernels/cpu/fp_env.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Inputs are added in groups of at most this many; between groups sums wait in the tile.
inline constexpr size_t kMaxGroupInputs = 8;

// sum[i] = (sum[i] +) input_0[i] + input_1[i] + ... for whole vectors.
template <DataType kType, size_t kInputs, bool kIsFirst>
HWY_INLINE void AddInputs(const void* const* inputs, size_t count, float* sum) {
  for (size_t i = 0; i < count; i += kLanes) {
    VF value = kIsFirst ? LoadF32<kType>(inputs[0], i) : hn::Load(kF32, sum + i);
    HWY_UNROLL(8)
    for (size_t k = kIsFirst ? 1 : 0; k < kInputs; ++k) {
      value = hn::Add(value, LoadF32<kType>(inputs[k], i));
    }
    hn::Store(value, kF32, sum + i);
  }
}

template <DataType kType, size_t kInputs>
HWY_NOINLINE void AddGroup(const void* const* inputs, bool is_first, size_t count, float* sum) {
  const void* group[kInputs];
  std::copy(inputs, inputs + kInputs, group);
  const size_t whole = count / kLanes * kLanes;
  if (is_first) {
    AddInputs<kType, kInputs, true>(group, whole, sum);
  } else {
    AddInputs<kType, kInputs, false>(group, whole, sum);
  }
  if (whole == count) return;
  using Element = ElementOf<kType>;
  alignas(64) Element last[kInputs][kLanes] = {};
  for (size_t k = 0; k < kInputs; ++k) {
    memcpy(last[k], static_cast<const Element*>(group[k]) + whole,
           (count - whole) * sizeof(Element));
    group[k] = last[k];
  }
  if (is_first) {
    AddInputs<kType, kInputs, true>(group, kLanes, sum + whole);
  } else {
    AddInputs<kType, kInputs, false>(group, kLanes, sum + whole);
  }
}

template <DataType kType, bool kStream>
HWY_NOINLINE void WriteSums(const float* sum, float divisor, size_t count, void* output) {
  using Element = ElementOf<kType>;
  const VF by = hn::Set(kF32, divisor);
  const bool divides = divisor != 1;
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    const VF value = hn::Load(kF32, sum + i);
    StoreF32As<kType, kStream>(divides ? hn::Div(value, by) : value, output, i);
  }
  if (whole == count) return;
  alignas(64) Element last[kLanes];
  const VF value = hn::Load(kF32, sum + whole);
  StoreF32As<kType>(divides ? hn::Div(value, by) : value, last, 0);
  memcpy(static_cast<Element*>(output) + whole, last, (count - whole) * sizeof(Element));
}

template <DataType kType>
void DenseReduceAs(const void* const* inputs, size_t ranks, size_t piece_count, float divisor,
                   void* output) {
  using Element = ElementOf<kType>;
  const bool is_streamed = ShouldStream(output, piece_count * sizeof(Element));
  alignas(64) float sum[kTile];
  for (size_t begin = 0; begin < piece_count; begin += kTile) {
    const size_t count = std::min(kTile, piece_count - begin);
    for (size_t first = 0; first < ranks;) {
      const size_t left = ranks - first;
      const size_t group = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      const void* at[kMaxGroupInputs];
      for (size_t k = 0; k < group; ++k) {
        at[k] = static_cast<const Element*>(inputs[first + k]) + begin;
      }
      const bool is_first = first == 0;
      if (group == 8) AddGroup<kType, 8>(at, is_first, count, sum);
      if (group == 4) AddGroup<kType, 4>(at, is_first, count, sum);
      if (group == 2) AddGroup<kType, 2>(at, is_first, count, sum);
      if (group == 1) AddGroup<kType, 1>(at, is_first, count, sum);
      first += group;
    }
    Element* to = static_cast<Element*>(output) + begin;
    if (is_streamed) {
      WriteSums<kType, true>(sum, divisor, count, to);
    } else {
      WriteSums<kType, false>(sum, divisor, count, to);
    }
  }
  if (is_streamed) hwy::FlushStream();
}

}  // namespace

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type,
                 bool is_average, void* output) {
  const float divisor = is_average ? static_cast<float>(ranks) : 1;
  switch (type) {
    case DataType::kF32:
      return DenseReduceAs<DataType::kF32>(inputs, ranks, count, divisor, output);
    case DataType::kF16:
      return DenseReduceAs<DataType::kF16>(inputs, ranks, count, divisor, output);
    case DataType::kBf16:
      return DenseReduceAs<DataType::kBf16>(inputs, ranks, count, divisor, output);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(DenseReduce);

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type,
                 bool is_average, void* output) {
  const DefaultFpScope fp;
  HWY_DYNAMIC_DISPATCH(DenseReduce)(inputs, ranks, count, type, is_average, output);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
