// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Averages over the ranks of an optimizer's gradients and momenta, dense or compressed, and their
// norms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "api/optimizer_calls.h"
#include "base/status.h"
#include "onebit/onebit.h"
#include "optim/arithmetic.h"
#include "optim/gradient_list.h"
#include "optim/segment_table.h"
#include "optim/step_agreement.h"

namespace onebit::optim {

// The factors of a step, and how they limit norms.
struct StepScale {
  float own = 1;      // multiplies gradients of this rank, before they are averaged
  float average = 1;  // multiplies averages of gradients
  // Greatest norm of averages, which then reduces `average`; 0: they have no limit of their own.
  double average_limit = 0;
  // The norm of gradients, as onebitOptimizerStep returns it; -1: not measured.
  double grad_norm = -1;
};

// Owns the compressor and knows the communicator. Values are at the arithmetic's location, and
// every function that touches them is called between its Begin and End. One thread at a time.
class RankAverages {
 public:
  // Both references must outlive this object.
  RankAverages(const SegmentTable& table, Arithmetic& arithmetic, onebitComm_t comm)
      : table_(table), arithmetic_(arithmetic), comm_(comm) {}
  ~RankAverages() { DestroyAfterCalls(compressor_); }
  RankAverages(const RankAverages&) = delete;
  RankAverages& operator=(const RankAverages&) = delete;

  Status Allocate();
  // Restarts scales at the elements `cuts`, and keeps residuals at the arithmetic's location. Must
  // be the last allocation of an optimizer: it takes a number of the communicator, also on the
  // other ranks.
  Status CreateCompressor(size_t element_count, const onebitCompressorConfig_t* config,
                          std::span<const size_t> cuts);
  // Requires a live communicator: CheckComm later asks if it still exists.
  void ObserveComm();
  // Waits, for a bounded time, until no thread of the library uses the compressor; it is gone then.
  void Drain();

  onebitComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Status CheckComm() const;
  uint64_t BytesSent() const;
  // Null when nothing will ever be compressed.
  onebitCompressor_t compressor() const { return compressor_; }

  // Averages gradients in place, and limits their norm. False if squares of scaled averages leave
  // fp32.
  Result<bool> AverageGradients(const Gradients& gradients, Which which, StepScale* scale);
  // The same for other values.
  Result<bool> AverageFloats(float* values, size_t count);
  // Averages with compression. False if any rank had a value that is not finite.
  Result<bool> AverageCompressed(float* values, size_t count);

  // The sum of squares of this rank's gradients, times the square of the step's factor.
  Result<double> ScaledSumOfSquares(const Gradients& gradients, const StepNumbers& numbers);
  // Returns sqrt(mean_r `scaled_sum`), the same bytes on every rank; not finite if any sum is not
  // usable.
  Result<double> AgreeOnNorm(double scaled_sum);
  // The sum of a variance over the chosen segments.
  Result<double> VarianceSum(const float* v, Which which);

  Status ResetCompressor();
  Status ImportCompressor(std::span<const std::byte> state);
  // Migrates the compressor. Returns true if it had to roll forward to a step that this rank's
  // residuals did not have.
  Result<bool> RebindCompressor(onebitComm_t comm);
  // Uses another communicator, to which the compressor was rebound, from here on.
  void MoveTo(onebitComm_t comm, int rank, int ranks);

 private:
  // Results of kernels.
  struct Numbers {
    double sum;
    float value;
    kernels::cuda::CompressorWords totals;
  };
  Numbers& numbers() const { return *reinterpret_cast<Numbers*>(numbers_.data()); }
  template <Kernel kKernel, typename ParamsOf>
  Result<double> SumOverSegments(Which which, onebitComm_t comm, ParamsOf params_of);
  Result<double> SumOfSquares(const Gradients& gradients, Which which, onebitComm_t comm);
  Status EnqueueAverages(const Gradients& gradients, Which which);
  Result<bool> AverageOnStream(float* values, size_t count);

  const SegmentTable& table_;
  Arithmetic& arithmetic_;
  onebitComm_t comm_;
  int rank_ = 0;
  int ranks_ = 0;
  CommObserver observer_;   // observes comm_
  uint32_t tensor_id_ = 0;  // reserved there
  onebitCompressor_t compressor_ = nullptr;
  Memory numbers_;
  Memory segment_sums_;  // results: a double per segment
  Memory mean_;          // a float, for averages
  // On a device: totals after the last compressed call, unless the compressor has changed since.
  std::optional<DeviceTotals> totals_;
  // The epoch before a step that gave up while its call was pending: anything committed later
  // belongs to a step that this rank has not made. Valid until a rebind, or until the residuals are
  // replaced.
  std::optional<uint64_t> epoch_of_open_call_;
};

}  // namespace onebit::optim
