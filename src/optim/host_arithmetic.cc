// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/host_arithmetic.h"

#include "kernels/lamb.h"
#include "kernels/optimizer.h"
#include "kernels/zero_one.h"

namespace onebit::optim {
namespace {

namespace cpu = kernels::cpu;

template <Kernel kKernel>
const kernels::OptimizerParamsOf<kKernel>& As(const void* params) {
  return *static_cast<const kernels::OptimizerParamsOf<kKernel>*>(params);
}

}  // namespace

void HostArithmetic::RunKernel(Kernel kernel, const void* params) {
  switch (kernel) {
    case Kernel::kSumOfSquares: {
      const auto& p = As<Kernel::kSumOfSquares>(params);
      *p.sum = cpu::SumOfSquares(p.values, p.type, p.count);
      return;
    }
    case Kernel::kSumOfMagnitudes: {
      const auto& p = As<Kernel::kSumOfMagnitudes>(params);
      *p.sum = cpu::SumOfMagnitudes(p.values, p.type, p.count);
      return;
    }
    case Kernel::kMaskOfNonzero: {
      const auto& p = As<Kernel::kMaskOfNonzero>(params);
      *p.set_bits = cpu::MaskOfNonzero(p.v, p.count, p.mask);
      return;
    }
    case Kernel::kAdamDense:
      return cpu::AdamDense(As<Kernel::kAdamDense>(params));
    case Kernel::kAdamFrozen:
      return cpu::AdamFrozen(As<Kernel::kAdamFrozen>(params));
    case Kernel::kLocalMomentum: {
      const auto& p = As<Kernel::kLocalMomentum>(params);
      return cpu::LocalMomentum(p.m, p.g, p.g_type, p.g_scale, p.beta1, p.one_minus_beta1, p.mask,
                                p.count, p.out);
    }
    case Kernel::kLambDense: {
      const auto& p = As<Kernel::kLambDense>(params);
      *p.norms = cpu::LambDense(p.update);
      return;
    }
    case Kernel::kLambFrozen: {
      const auto& p = As<Kernel::kLambFrozen>(params);
      *p.norms = cpu::LambFrozen(p.update);
      return;
    }
    case Kernel::kZeroOneLocal:
      return cpu::ZeroOneLocal(As<Kernel::kZeroOneLocal>(params));
    case Kernel::kZeroOneAccumulate: {
      const auto& p = As<Kernel::kZeroOneAccumulate>(params);
      return cpu::ZeroOneAccumulate(p.update, p.out);
    }
    case Kernel::kZeroOneSync:
      return cpu::ZeroOneSync(As<Kernel::kZeroOneSync>(params));
    case Kernel::kRefreshVariance: {
      const auto& p = As<Kernel::kRefreshVariance>(params);
      return cpu::RefreshVariance(p.v, p.input, p.type, p.input_scale, p.beta2, p.one_minus_beta2,
                                  p.count, p.out);
    }
  }
}

}  // namespace onebit::optim
