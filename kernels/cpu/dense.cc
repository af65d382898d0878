// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Uncompressed reduction.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dense.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dense_words-inl.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/kernels.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// Inputs are added in groups of at most this many; between groups, sums stay in the tile.
inline constexpr size_t kMaxGroupInputs = 8;

// Part of a tile: sum = (sum +) input_0 + input_1 + ..., and after the last input output = sum /
// divisor.
struct DensePart {
  const void* inputs[kMaxGroupInputs];
  float* sum;
  void* output;
  size_t count;
  float divisor;
};

enum class Last { kNo, kPlain, kStreamed };

template <DataType kType, size_t kInputs, bool kIsFirst>
HWY_INLINE VF AddInputs(const DensePart& part, size_t i) {
  VF sum = kIsFirst ? LoadF32<kType>(part.inputs[0], i) : hn::Load(kF32, part.sum + i);
  HWY_UNROLL(8)
  for (size_t k = kIsFirst ? 1 : 0; k < kInputs; ++k) {
    sum = hn::Add(sum, LoadF32<kType>(part.inputs[k], i));
  }
  return sum;
}

template <DataType kType, Last kLast>
HWY_INLINE void WriteSum(VF sum, const DensePart& part, size_t i) {
  if constexpr (kLast == Last::kNo) {
    hn::Store(sum, kF32, part.sum + i);
  } else {
    if (part.divisor != 1) sum = hn::Div(sum, hn::Set(kF32, part.divisor));
    StoreF32As<kType, kLast == Last::kStreamed>(sum, part.output, i);
  }
}

template <DataType kType, size_t kInputs, bool kIsFirst, Last kLast>
HWY_NOINLINE void ReducePartAs(const DensePart& part_in_memory) {
  using Element = ElementOf<kType>;
  const DensePart part = part_in_memory;  // stays in registers across KeepOrder()
  const size_t whole = part.count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kInputs; ++k) FetchAhead<kType>(part.inputs[k], i);
    WriteSum<kType, kLast>(AddInputs<kType, kInputs, kIsFirst>(part, i), part, i);
    KeepOrder();
  }
  if (whole == part.count) return;
  // The last, partial vector uses copies.
  const size_t left_bytes = (part.count - whole) * sizeof(Element);
  alignas(64) Element inputs[kInputs][kLanes] = {};
  alignas(64) Element output[kLanes];
  DensePart last = part;
  last.sum = part.sum + whole;
  last.output = output;
  for (size_t k = 0; k < kInputs; ++k) {
    memcpy(inputs[k], static_cast<const Element*>(part.inputs[k]) + whole, left_bytes);
    last.inputs[k] = inputs[k];
  }
  constexpr Last kLastPlain = kLast == Last::kNo ? Last::kNo : Last::kPlain;
  WriteSum<kType, kLastPlain>(AddInputs<kType, kInputs, kIsFirst>(last, 0), last, 0);
  if constexpr (kLast != Last::kNo) {
    memcpy(static_cast<Element*>(part.output) + whole, output, left_bytes);
  }
}

template <DataType kType, size_t kInputs>
HWY_INLINE void ReducePart(const DensePart& part, bool is_first, Last last) {
  switch (last) {
    case Last::kNo:
      return is_first ? ReducePartAs<kType, kInputs, true, Last::kNo>(part)
                      : ReducePartAs<kType, kInputs, false, Last::kNo>(part);
    case Last::kPlain:
      return is_first ? ReducePartAs<kType, kInputs, true, Last::kPlain>(part)
                      : ReducePartAs<kType, kInputs, false, Last::kPlain>(part);
    case Last::kStreamed:
      return is_first ? ReducePartAs<kType, kInputs, true, Last::kStreamed>(part)
                      : ReducePartAs<kType, kInputs, false, Last::kStreamed>(part);
  }
}

template <DataType kType>
void DenseReduceAs(const void* const* inputs, size_t ranks, size_t piece_count, float divisor,
                   void* output) {
  using Element = ElementOf<kType>;
  const bool is_streamed = ShouldStream(output, piece_count * sizeof(Element));
  alignas(64) float sum[kTile];
  DensePart part = {.sum = sum, .divisor = divisor};
  for (size_t begin = 0; begin < piece_count; begin += kTile) {
    part.count = std::min(kTile, piece_count - begin);
    part.output = static_cast<Element*>(output) + begin;
    for (size_t first = 0; first < ranks;) {
      const size_t left = ranks - first;
      const size_t group = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      for (size_t k = 0; k < group; ++k) {
        part.inputs[k] = static_cast<const Element*>(inputs[first + k]) + begin;
      }
      const bool is_first = first == 0;
      first += group;
      const Last last = first < ranks ? Last::kNo : is_streamed ? Last::kStreamed : Last::kPlain;
      if (group == 8) ReducePart<kType, 8>(part, is_first, last);
      if (group == 4) ReducePart<kType, 4>(part, is_first, last);
      if (group == 2) ReducePart<kType, 2>(part, is_first, last);
      if (group == 1) ReducePart<kType, 1>(part, is_first, last);
    }
  }
  if (is_streamed) hwy::FlushStream();
}

// sum = (sum +) factor * input
template <DataType kType>
HWY_NOINLINE void AddProducts(const void* input, float factor, bool is_first, size_t count,
                              float* sum) {
  const VF factors = hn::Set(kF32, factor);
  const auto add = [&](const void* from, size_t i, float* to) HWY_ATTR {
    const VF product = hn::Mul(factors, LoadF32<kType>(from, i));
    hn::Store(is_first ? product : hn::Add(hn::Load(kF32, to), product), kF32, to);
  };
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) add(input, i, sum + i);
  if (whole == count) return;
  using Element = ElementOf<kType>;
  alignas(64) Element last[kLanes] = {};
  memcpy(last, static_cast<const Element*>(input) + whole, (count - whole) * sizeof(Element));
  add(last, 0, sum + whole);  // a tile has room for whole vectors
}

template <DataType kType>
HWY_NOINLINE void WriteQuotients(const float* sum, float divisor, size_t count, void* output) {
  using Element = ElementOf<kType>;
  const VF divisors = hn::Set(kF32, divisor);
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    StoreF32As<kType, false>(hn::Div(hn::Load(kF32, sum + i), divisors), output, i);
  }
  if (whole == count) return;
  alignas(64) Element last[kLanes];
  StoreF32As<kType, false>(hn::Div(hn::Load(kF32, sum + whole), divisors), last, 0);
  memcpy(static_cast<Element*>(output) + whole, last, (count - whole) * sizeof(Element));
}

// A sum with factors, or one that is written in fp32.
template <DataType kType>
void ReduceProductsAs(const void* const* inputs, size_t ranks, size_t piece_count, float divisor,
                      const DenseTerms& terms, void* output) {
  using Element = ElementOf<kType>;
  alignas(64) float sum[kTile];
  for (size_t begin = 0; begin < piece_count; begin += kTile) {
    const size_t count = std::min(kTile, piece_count - begin);
    for (size_t rank = 0; rank < ranks; ++rank) {
      AddProducts<kType>(static_cast<const Element*>(inputs[rank]) + begin,
                         terms.factors == nullptr ? 1 : terms.factors[rank], rank == 0, count, sum);
    }
    if (terms.is_output_f32) {
      WriteQuotients<DataType::kF32>(sum, divisor, count, static_cast<float*>(output) + begin);
    } else {
      WriteQuotients<kType>(sum, divisor, count, static_cast<Element*>(output) + begin);
    }
  }
}

template <DataType kType>
void ReduceFloats(const void* const* inputs, size_t ranks, size_t count, float divisor,
                  const DenseTerms& terms, void* output) {
  if (terms.factors == nullptr && (!terms.is_output_f32 || kType == DataType::kF32)) {
    DenseReduceAs<kType>(inputs, ranks, count, divisor, output);
  } else {
    ReduceProductsAs<kType>(inputs, ranks, count, divisor, terms, output);
  }
}

}  // namespace

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output, const DenseTerms& terms) {
  const size_t ranks_of_average = terms.divisor == 0 ? ranks : terms.divisor;
  if (IsOfWords(type, op)) {
    reference::ReduceWords<TiledReduction>(type, op, inputs, ranks, count, ranks_of_average,
                                           output);
    return;
  }
  const float divisor = op == DenseOp::kAverage ? static_cast<float>(ranks_of_average) : 1;
  switch (type) {
    case DataType::kF32:
      return ReduceFloats<DataType::kF32>(inputs, ranks, count, divisor, terms, output);
    case DataType::kF16:
      return ReduceFloats<DataType::kF16>(inputs, ranks, count, divisor, terms, output);
    case DataType::kBf16:
      return ReduceFloats<DataType::kBf16>(inputs, ranks, count, divisor, terms, output);
      ONEBIT_CASES_OF_DENSE_ONLY_TYPES;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(DenseReduce);

void DenseReduce(const void* const* inputs, size_t ranks, size_t count, DataType type, DenseOp op,
                 void* output, const DenseTerms& terms) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(DenseReduce)(inputs, ranks, count, type, op, output, terms);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
