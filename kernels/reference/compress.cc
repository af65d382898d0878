// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Worker side: numbers to signs, scales and residuals.
#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/reference/block_sum.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/fp_env.h"
#include "kernels/reference/scale.h"

namespace onebit::kernels::reference {
namespace {

float CompensatedInput(const CompressInput& in, size_t i) {
  if (!TakesPart(in.mask, i)) return 0;
  const float x = LoadElement(in.input, in.input_type, i);
  return in.residual_in == nullptr ? x : x + LoadElement(in.residual_in, in.residual_type, i);
}

void WriteSigns(const CompressInput& in, size_t begin, size_t end, uint8_t* bits) {
  for (size_t i = begin; i < end; ++i) WriteBit(CompensatedInput(in, i) < 0, i, bits);
}

void WriteResidual(const CompressInput& in, size_t begin, size_t end, float scale) {
  if (in.residual_out == nullptr) return;
  for (size_t i = begin; i < end; ++i) {
    const float z = CompensatedInput(in, i);
    const float lost = TakesPart(in.mask, i) ? z - (z < 0 ? -scale : scale) : 0;
    StoreElement(lost, in.residual_type, i, in.residual_out);
  }
}

// Adds the sum of [begin, end) to `sum`; a block that is not finite only clears the flag.
void AddBlock(const CompressInput& in, size_t begin, size_t end, TensorSum* sum) {
  const auto z_at = [&](size_t i) { return CompensatedInput(in, begin + i); };
  for (size_t i = begin; i < end; ++i) sum->element_count += TakesPart(in.mask, i) ? 1 : 0;
  if (AllInRange(end - begin, in.residual_type, z_at)) {
    sum->sum += BlockSum(end - begin, in.rule, z_at);
  } else {
    sum->is_finite = false;
  }
}

}  // namespace

bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  return InDefaultFpEnvironment([&] {
    bool is_finite = true;
    for (size_t begin = 0; begin < in.count; begin += block) {
      const size_t end = std::min(in.count, begin + block);
      TensorSum sum;
      AddBlock(in, begin, end, &sum);
      const float scale = RoundTo(in.scale_type, ScaleOfSum(sum.sum, sum.element_count, in.rule));
      scales[begin / block] = scale;
      WriteSigns(in, begin, end, bits);
      WriteResidual(in, begin, end, scale);
      is_finite = is_finite && sum.is_finite && std::isfinite(scale);
    }
    return is_finite;
  });
}

void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  InDefaultFpEnvironment([&] {
    WriteSigns(in, 0, in.count, bits);
    for (size_t begin = 0; begin < in.count; begin += kTensorSumBlock) {
      AddBlock(in, begin, std::min(in.count, begin + kTensorSumBlock), sum);
    }
  });
}

void CompressResidual(const CompressInput& in, float scale) {
  InDefaultFpEnvironment([&] { WriteResidual(in, 0, in.count, scale); });
}

float ScaleOf(const TensorSum& sum, ScaleRule rule) {
  return InDefaultFpEnvironment([&] { return ScaleOfSum(sum.sum, sum.element_count, rule); });
}

}  // namespace onebit::kernels::reference
