// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Averages and norms of an optimizer's gradients, of all segments in one buffer or of each in its
// own.
#include <cmath>
#include <limits>

#include "optim/api_status.h"
#include "optim/gradient_elements.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer_base.h"

namespace onebit::optim {

using kernels::DataType;

// ------------------------------------------------------------------------------------------ norms

// Measures the norm that limits a step, unless the step itself will.
Result<StepScale> Optimizer::ScaleOf(const StepInput& input, onebitStage_t stage) {
  StepScale scale;
  scale.own = scale.average = static_cast<float>(input.grad_scale);
  if (input.max_grad_norm == 0) return scale;
  if (options_.clips_average) {
    scale.average_limit = input.max_grad_norm;
    if (averages_all_gradients()) return scale;
    ONEBIT_ASSIGN_OR_RETURN(const double scaled_sum, ScaledSumOfSquares(input));
    scale.grad_norm = NormOf(scaled_sum);
    scale.own = ClippedScale(input, scale.grad_norm);
    // A rank that sends its momentum makes all ranks skip the step with it. One that sends only
    // gradients contributes nothing to its own momentum, as in a local step.
    if (!IsUsable(scaled_sum)) {
      scale.own = stage == onebitStageDense ? 0 : std::numeric_limits<float>::quiet_NaN();
    }
    return scale;
  }
  ONEBIT_ASSIGN_OR_RETURN(scale.grad_norm, AgreeOnNorm(input));
  scale.own = scale.average = ClippedScale(input, scale.grad_norm);
  return scale;
}

// ---------------------------------------------------------------------------- sums and averages

// Runs a kernel that sums up one segment for each of the chosen ones, and adds the results in the
// order of segments: the sum of gradients does not depend on whether they are in one buffer.
// `params_of` returns the kernel's parameters, without the address of its result.
template <Kernel kKernel, typename ParamsOf>
Result<double> Optimizer::SumOverSegments(Which which, onebitComm_t comm, ParamsOf params_of) {
  auto* const sums = reinterpret_cast<double*>(segment_sums_.data());
  const std::vector<Segment>& segments = table_.segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!Includes(which, segments[i])) continue;
    kernels::SumParams params = params_of(i);
    params.count = segments[i].count;
    params.sum = &sums[i];
    arithmetic_->Run<kKernel>(params);
  }
  ONEBIT_TRY(arithmetic_->Await(comm));
  double sum = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (Includes(which, segments[i])) sum += sums[i];
  }
  return sum;
}

Result<double> Optimizer::SumOfSquares(const Gradients& gradients, Which which, onebitComm_t comm) {
  return SumOverSegments<Kernel::kSumOfSquares>(which, comm, [&](size_t i) {
    const Gradient& gradient = gradients.by_segment[i];
    return kernels::SumParams{.values = gradient.data, .type = gradient.type};
  });
}

Result<double> Optimizer::VarianceSum(Which which) {
  return SumOverSegments<Kernel::kSumOfMagnitudes>(which, nullptr, [&](size_t i) {
    return kernels::SumParams{.values = v() + table_.segments()[i].offset};
  });
}

Result<double> Optimizer::ScaledSumOfSquares(const StepInput& input) {
  ONEBIT_ASSIGN_OR_RETURN(const double sum, SumOfSquares(input.gradients, Which::kAll, nullptr));
  return sum * input.grad_scale * input.grad_scale;
}

// Returns sqrt(mean_r |g_r|^2) of scaled gradients, the same bytes on every rank; not finite if any
// gradient is not.
Result<double> Optimizer::AgreeOnNorm(const StepInput& input) {
  ONEBIT_ASSIGN_OR_RETURN(const double scaled_sum, ScaledSumOfSquares(input));
  float& mean = numbers().value;
  mean = IsUsable(scaled_sum) ? static_cast<float>(scaled_sum)
                              : std::numeric_limits<float>::infinity();
  arithmetic_->Copy(mean_.data(), &mean, sizeof(mean));
  ONEBIT_TRY(FromApi(
      OwnAllReduce(mean_.data(), 1, onebitFloat32, onebitAvg, comm_, arithmetic_->stream())));
  arithmetic_->Copy(&mean, mean_.data(), sizeof(mean));
  ONEBIT_TRY(arithmetic_->Await(comm_));
  return std::sqrt(static_cast<double>(mean));
}

// Segments whose gradients have memory of their own travel in one group: in the same messages, and
// with the same bits as in one buffer, because averages are elementwise.
Status Optimizer::EnqueueAverages(const Gradients& gradients, Which which) {
  const auto average = [&](void* values, size_t count, DataType type) {
    return OwnAllReduce(values, count, ApiType(type), onebitAvg, comm_, arithmetic_->stream());
  };
  if (which == Which::kAll && (gradients.buffer != nullptr || count_ == 0)) {
    return FromApi(
        average(gradients.buffer, count_, count_ == 0 ? DataType::kF32 : gradients.buffer_type()));
  }
  ONEBIT_TRY(FromApi(onebitGroupStart()));
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const Segment& segment = table_.segments()[i];
    if (segment.count == 0 || !Includes(which, segment)) continue;
    const Gradient& gradient = gradients.by_segment[i];
    // The group's end returns this error, too.
    static_cast<void>(average(gradient.data, segment.count, gradient.type));
  }
  return FromApi(onebitGroupEnd());
}

Result<bool> Optimizer::AverageGradients(const Gradients& gradients, Which which,
                                         StepScale* scale) {
  ONEBIT_TRY(EnqueueAverages(gradients, which));
  ONEBIT_ASSIGN_OR_RETURN(const double sum, SumOfSquares(gradients, which, comm_));
  const double scaled_sum = sum * scale->average * scale->average;
  if (scale->average_limit > 0) {
    const double norm = NormOf(scaled_sum);
    if (which == Which::kAll) scale->grad_norm = norm;
    if (norm > scale->average_limit) {
      scale->average *= static_cast<float>(scale->average_limit / norm);
    }
  }
  return IsUsable(scaled_sum);
}

Result<bool> Optimizer::AverageFloats(float* values, size_t count) {
  ONEBIT_TRY(
      FromApi(OwnAllReduce(values, count, onebitFloat32, onebitAvg, comm_, arithmetic_->stream())));
  arithmetic_->Run<Kernel::kSumOfSquares>(
      {.values = values, .count = count, .sum = &numbers().sum});
  ONEBIT_TRY(arithmetic_->Await(comm_));
  return IsUsable(numbers().sum);
}

}  // namespace onebit::optim
