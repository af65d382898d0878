// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/rank_averages.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "optim/api_status.h"
#include "optim/gradient_elements.h"
#include "optim/gradient_norm.h"

namespace onebit::optim {

using kernels::DataType;

// ---------------------------------------------------------------------------------- life time

Status RankAverages::Allocate() {
  ONEBIT_TRY(FromApi(onebitCommUserRank(comm_, &rank_)));
  ONEBIT_TRY(FromApi(onebitCommCount(comm_, &ranks_)));
  ONEBIT_ASSIGN_OR_RETURN(numbers_, arithmetic_.AllocateResults(sizeof(Numbers)));
  ONEBIT_ASSIGN_OR_RETURN(segment_sums_,
                          arithmetic_.AllocateResults(table_.segments().size() * sizeof(double)));
  ONEBIT_ASSIGN_OR_RETURN(mean_, arithmetic_.Allocate(sizeof(float), "a norm"));
  return OkStatus();
}

Status RankAverages::CreateCompressor(size_t element_count, const onebitCompressorConfig_t* config,
                                      std::span<const size_t> cuts) {
  onebitCompressorConfig_t here = ONEBIT_COMPRESSOR_CONFIG_INIT;
  if (config != nullptr) std::memcpy(&here, config, config->size);
  here.size = sizeof(here);
  const MemoryLocation& location = arithmetic_.location();
  if (location.is_device()) {
    here.memory = onebitMemoryDevice;
    here.device = location.device;
  }
  here.cuts = cuts.data();
  here.cutCount = cuts.size();
  return FromApi(onebitCompressorCreate(&compressor_, comm_, element_count, onebitFloat32, &here));
}

void RankAverages::ObserveComm() {
  observer_ = CommObserver(comm_);
  tensor_id_ = ReserveTensorId(comm_);
}

void RankAverages::Drain() { DestroyAfterCalls(std::exchange(compressor_, nullptr)); }

Status RankAverages::CheckComm() const {
  if (observer_.is_alive()) return OkStatus();
  return Error(Code::kDetached,
               "the optimizer's communicator was destroyed: rebind it to another one with "
               "onebitOptimizerRebind, export its state, or destroy it");
}

uint64_t RankAverages::BytesSent() const {
  onebitCommStats_t stats{.size = sizeof(stats)};
  return onebitCommGetStats(comm_, &stats) == onebitSuccess ? stats.bytes_sent : 0;
}

// --------------------------------------------------------------------------------------- sums

// Runs a kernel that sums up one segment for each of the chosen ones, and adds the results in the
// order of segments: the sum of gradients does not depend on whether they are in one buffer.
// `params_of` returns the kernel's parameters, without the address of its result.
template <Kernel kKernel, typename ParamsOf>
Result<double> RankAverages::SumOverSegments(Which which, onebitComm_t comm, ParamsOf params_of) {
  auto* const sums = reinterpret_cast<double*>(segment_sums_.data());
  const std::vector<Segment>& segments = table_.segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!Includes(which, segments[i])) continue;
    kernels::SumParams params = params_of(i);
    params.count = segments[i].count;
    params.sum = &sums[i];
    arithmetic_.Run<kKernel>(params);
  }
  ONEBIT_TRY(arithmetic_.Await(comm));
  double sum = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (Includes(which, segments[i])) sum += sums[i];
  }
  return sum;
}

Result<double> RankAverages::SumOfSquares(const Gradients& gradients, Which which,
                                          onebitComm_t comm) {
  return SumOverSegments<Kernel::kSumOfSquares>(which, comm, [&](size_t i) {
    const Gradient& gradient = gradients.by_segment[i];
    return kernels::SumParams{.values = gradient.data, .type = gradient.type};
  });
}

Result<double> RankAverages::VarianceSum(const float* v, Which which) {
  return SumOverSegments<Kernel::kSumOfMagnitudes>(which, nullptr, [&](size_t i) {
    return kernels::SumParams{.values = v + table_.segments()[i].offset};
  });
}

Result<double> RankAverages::ScaledSumOfSquares(const Gradients& gradients,
                                                const StepNumbers& numbers) {
  ONEBIT_ASSIGN_OR_RETURN(const double sum, SumOfSquares(gradients, Which::kAll, nullptr));
  return sum * numbers.grad_scale * numbers.grad_scale;
}

Result<double> RankAverages::AgreeOnNorm(double scaled_sum) {
  float& mean = numbers().value;
  mean = IsUsable(scaled_sum) ? static_cast<float>(scaled_sum)
                              : std::numeric_limits<float>::infinity();
  arithmetic_.Copy(mean_.data(), &mean, sizeof(mean));
  ONEBIT_TRY(FromApi(
      OwnAllReduce(mean_.data(), 1, onebitFloat32, onebitAvg, comm_, arithmetic_.stream())));
  arithmetic_.Copy(&mean, mean_.data(), sizeof(mean));
  ONEBIT_TRY(arithmetic_.Await(comm_));
  return std::sqrt(static_cast<double>(mean));
}

// ------------------------------------------------------------------------------------ averages

// Segments whose gradients have memory of their own travel in one group: in the same messages, and
// with the same bits as in one buffer, because averages are elementwise.
Status RankAverages::EnqueueAverages(const Gradients& gradients, Which which) {
  const auto average = [&](void* values, size_t count, DataType type) {
    return OwnAllReduce(values, count, ApiType(type), onebitAvg, comm_, arithmetic_.stream());
  };
  const size_t count = table_.count();
  if (which == Which::kAll && (gradients.buffer != nullptr || count == 0)) {
    return FromApi(
        average(gradients.buffer, count, count == 0 ? DataType::kF32 : gradients.buffer_type()));
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

Result<bool> RankAverages::AverageGradients(const Gradients& gradients, Which which,
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

Result<bool> RankAverages::AverageFloats(float* values, size_t count) {
  ONEBIT_TRY(
      FromApi(OwnAllReduce(values, count, onebitFloat32, onebitAvg, comm_, arithmetic_.stream())));
  arithmetic_.Run<Kernel::kSumOfSquares>({.values = values, .count = count, .sum = &numbers().sum});
  ONEBIT_TRY(arithmetic_.Await(comm_));
  return IsUsable(numbers().sum);
}

Result<bool> RankAverages::AverageCompressed(float* values, size_t count) {
  if (arithmetic_.is_deferred()) return AverageOnStream(values, count);
  ONEBIT_ASSIGN_OR_RETURN(const CallOutcome outcome,
                          CompressedAverage(values, count, compressor_, comm_, nullptr));
  return outcome == CallOutcome::kFinite;
}

// A step follows the residuals: it counts if the call committed, even if the communicator failed
// right after that.
Result<bool> RankAverages::AverageOnStream(float* values, size_t count) {
  if (!totals_) {
    ONEBIT_ASSIGN_OR_RETURN(totals_, AwaitTotals(compressor_));
  }
  const DeviceTotals before = *totals_;
  ONEBIT_TRY(CompressedAverage(values, count, compressor_, comm_, arithmetic_.stream()).status());
  Status status = EnqueueTotals(*compressor_, arithmetic_.stream(), &numbers().totals);
  if (status.ok()) status = arithmetic_.Await(comm_);
  const Result<DeviceTotals> after =
      status.ok() ? TotalsIn(numbers().totals) : TotalsNow(compressor_);
  if (!after.ok() || (!status.ok() && after.value() == before)) {
    totals_.reset();
    // The call could not be awaited, so it may still commit.
    if (!epoch_of_open_call_) epoch_of_open_call_ = before.epoch;
    return status.ok() ? after.status() : status;
  }
  totals_ = after.value();
  epoch_of_open_call_.reset();
  return totals_->nonfinite_calls == before.nonfinite_calls;
}

// ----------------------------------------------------------------------------------- compressor

Status RankAverages::ResetCompressor() {
  totals_.reset();
  epoch_of_open_call_.reset();
  return FromApi(onebitCompressorReset(compressor_));
}

Status RankAverages::ImportCompressor(std::span<const std::byte> state) {
  totals_.reset();
  ONEBIT_TRY(FromApi(onebitCompressorImport(compressor_, state.data(), state.size())));
  epoch_of_open_call_.reset();
  return OkStatus();
}

Result<bool> RankAverages::RebindCompressor(onebitComm_t comm) {
  onebitCompressorStats_t stats{.size = sizeof(stats)};
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(compressor_, &stats)));
  const uint64_t epoch_before = epoch_of_open_call_.value_or(stats.epoch);
  totals_.reset();
  int ignored = -1;  // the optimizer's own state was received before
  ONEBIT_TRY(FromApi(onebitCompressorRebind(compressor_, comm, &ignored)));
  ONEBIT_TRY(FromApi(onebitCompressorGetStats(compressor_, &stats)));
  return stats.epoch != epoch_before;
}

void RankAverages::MoveTo(onebitComm_t comm, int rank, int ranks) {
  observer_ = CommObserver(comm);
  ReserveTensorId(comm, tensor_id_);
  comm_ = comm;
  rank_ = rank;
  ranks_ = ranks;
  epoch_of_open_call_.reset();
}

}  // namespace onebit::optim
