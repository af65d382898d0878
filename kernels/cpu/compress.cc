// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Worker side: numbers to signs, scales and residuals.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/compress.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/encode-inl.h"
#include "kernels/cpu/input_source-inl.h"
#include "kernels/cpu/short_blocks-inl.h"
#include "kernels/kernels.h"
#include "kernels/reference/fp_env.h"

HWY_BEFORE_NAMESPACE();
namespace onebit::kernels::cpu::HWY_NAMESPACE {

namespace {

// The elements from `begin` on.
CompressInput RestOf(CompressInput in, size_t begin) {
  in.input = At(in.input, in.input_type, begin);
  in.residual_in = At(in.residual_in, in.residual_type, begin);
  in.residual_out = At(in.residual_out, in.residual_type, begin);
  if (in.mask != nullptr) in.mask += begin / 8;
  in.count -= begin;
  return in;
}

}  // namespace

bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  const size_t grouped = CountInGroups(in, block);
  const bool is_finite = grouped == 0 || EncodeGroups(in, block, grouped, scales, bits);
  const CompressInput rest = RestOf(in, grouped);
  return EncodeBlocks(InputSource(rest), block, scales + grouped / block, bits + grouped / 8) &&
         is_finite;
}

void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  EncodeSigns(InputSource(in), bits, sum);
}

void CompressResidual(const CompressInput& in, float scale) {
  EncodeResidual(InputSource(in), scale);
}

float ScaleOf(const TensorSum& sum, ScaleRule rule) {
  return ScaleOfSum(sum.sum, sum.element_count, rule);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace onebit::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onebit::kernels::cpu {

HWY_EXPORT(CompressBlocks);
HWY_EXPORT(CompressSigns);
HWY_EXPORT(CompressResidual);
HWY_EXPORT(ScaleOf);

bool CompressBlocks(const CompressInput& in, size_t block, float* scales, uint8_t* bits) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(CompressBlocks)(in, block, scales, bits);
}

void CompressSigns(const CompressInput& in, uint8_t* bits, TensorSum* sum) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(CompressSigns)(in, bits, sum);
}

void CompressResidual(const CompressInput& in, float scale) {
  const reference::FpEnvironment fp;
  HWY_DYNAMIC_DISPATCH(CompressResidual)(in, scale);
}

float ScaleOf(const TensorSum& sum, ScaleRule rule) {
  const reference::FpEnvironment fp;
  return HWY_DYNAMIC_DISPATCH(ScaleOf)(sum, rule);
}

}  // namespace onebit::kernels::cpu
#endif  // HWY_ONCE
