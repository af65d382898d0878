// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "steps/dense_reduction.h"

#include "plan/reduce_op.h"

namespace onebit {

DenseReduction DenseReductionOf(const Call& call, const Step& step) {
  const Plan& plan = *call.plan;
  if (call.compressor != nullptr) {
    return {.op = kernels::DenseOp::kAverage, .terms = {.is_output_f32 = true}};
  }
  DenseReduction reduction = {.op = DenseOpOf(call.descriptor.op), .terms = {}};
  if (!plan.key.has_two_levels || reduction.op != kernels::DenseOp::kAverage) return reduction;
  const bool has_means =
      plan.key.type == kernels::DataType::kF16 || plan.key.type == kernels::DataType::kBf16;
  if (step.kind == StepKind::kHostSum) {
    if (!has_means) reduction.op = kernels::DenseOp::kSum;
  } else if (!has_means) {
    reduction.terms.divisor = plan.ranks;
  } else if (!plan.host_sizes.empty()) {
    reduction.terms = {.divisor = plan.ranks, .factors = plan.host_sizes.data()};
  }
  return reduction;
}

}  // namespace onebit
