// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Server side: decodes and averages the packets of all ranks, and compresses the mean again.
#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/reference/average.h"
#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::reference {
namespace {

// y: the mean of all packets plus the residual of the last call.
float CompensatedMean(const ReduceInput& in, size_t block, size_t i) {
  if (!TakesPart(in.mask, i)) return 0;
  const float mean = MeanOfPackets(in, block, i);
  return in.residual_in == nullptr ? mean : mean + LoadElement(in.residual_in, in.residual_type, i);
}

void WriteSigns(const ReduceInput& in, size_t block, size_t begin, size_t end, uint8_t* bits) {
  for (size_t i = begin; i < end; ++i) WriteBit(CompensatedMean(in, block, i) < 0, i, bits);
}

void WriteResidual(const ReduceInput& in, size_t block, size_t begin, size_t end, float t) {
  if (in.residual_out == nullptr) return;
  const float scale = ScaleOfMean(t, in.ranks, in.is_sum);
  for (size_t i = begin; i < end; ++i) {
    const float y = CompensatedMean(in, block, i);
    const float lost = TakesPart(in.mask, i) ? y - (y < 0 ? -scale : scale) : 0;
    StoreElement(lost, in.residual_type, i, in.residual_out);
  }
}

void AddBlock(const ReduceInput& in, size_t block, size_t begin, size_t end, TensorSum* sum) {
  const auto y_at = [&](size_t i) { return CompensatedMean(in, block, begin + i); };
  for (size_t i = begin; i < end; ++i) sum->element_count += TakesPart(in.mask, i) ? 1 : 0;
  if (AllInRange(end - begin, in.residual_type, y_at)) {
    sum->sum += BlockSum(end - begin, in.rule, y_at);
  } else {
    sum->is_finite = false;
  }
}

}  // namespace

float OutputScale(float a, size_t ranks, bool is_sum, DataType output_type) {
  return InDefaultFpEnvironment([&] { return RoundedScale(a, ranks, is_sum, output_type); });
}

bool ReduceBlocks(const ReduceInput& in, size_t block, float* scales, uint8_t* bits) {
  return InDefaultFpEnvironment([&] {
    bool is_finite = true;
    for (size_t begin = 0; begin < in.count; begin += block) {
      const size_t end = std::min(in.count, begin + block);
      TensorSum sum;
      AddBlock(in, block, begin, end, &sum);
      const float a = ScaleOfSum(sum.sum, sum.element_count, in.rule);
      const float t = RoundedScale(a, in.ranks, in.is_sum, in.output_type);
      scales[begin / block] = t;
      WriteSigns(in, block, begin, end, bits);
      WriteResidual(in, block, begin, end, t);
      is_finite = is_finite && sum.is_finite && std::isfinite(t);
    }
    return is_finite;
  });
}

void ReduceSigns(const ReduceInput& in, uint8_t* bits, TensorSum* sum) {
  InDefaultFpEnvironment([&] {
    WriteSigns(in, 0, 0, in.count, bits);
    for (size_t begin = 0; begin < in.count; begin += kTensorSumBlock) {
      AddBlock(in, 0, begin, std::min(in.count, begin + kTensorSumBlock), sum);
    }
  });
}

void ReduceResidual(const ReduceInput& in, float t) {
  InDefaultFpEnvironment([&] { WriteResidual(in, 0, 0, in.count, t); });
}

}  // namespace onebit::kernels::reference
