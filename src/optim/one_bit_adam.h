// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam (Tang et al. 2021, algorithm 1) as a client of the public API and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "kernels/optimizer.h"
#include "onebit/optim.h"
#include "optim/frozen_variance.h"
#include "optim/options.h"
#include "optim/segment_table.h"
#include "schedule/freeze_rule.h"

namespace onebit::optim {

// Arguments of one step, checked.
struct StepInput {
  void* gradients = nullptr;
  kernels::DataType type = kernels::DataType::kF32;
  double learning_rate = 0;
  double grad_scale = 1;
  double max_grad_norm = 0;  // 0: not measured
};

// What it did.
struct StepOutcome {
  bool is_skipped = false;
  onebitStage_t stage = onebitStageDense;
  double grad_norm = -1;
  uint64_t bytes_sent = 0;
};

// A step has three parts, in this order, so that nothing ever has to be undone:
//   1. what can fail or be non-finite and is dense: the norm, then averages of dense gradients;
//   2. in the compressed stage, the compressed average of the momentum, which commits residuals;
//   3. the update of m, v, x and counters, which cannot fail.
// A verdict "not finite" after 1 or 2 is the same on every rank, since it is read from bytes that
// are the same on every rank; the step then ends there.
//
// One thread at a time.
class OneBitAdam {
 public:
  static Result<std::unique_ptr<OneBitAdam>> Create(onebitComm_t comm, size_t count,
                                                    float* parameters,
                                                    const onebitOptimizerConfig_t* config);
  ~OneBitAdam();
  OneBitAdam(const OneBitAdam&) = delete;
  OneBitAdam& operator=(const OneBitAdam&) = delete;

  // Outputs are written only on success.
  Status Step(const StepInput& input, StepOutcome* outcome);

  // Goes over to another communicator, of ranks of the present one. Collective on it. Returns the
  // rank whose state all have afterwards. one_bit_adam_rebind.cc
  Result<int> Rebind(onebitComm_t comm);

  // Fills everything but `size`.
  void GetStats(onebitOptimizerStats_t* stats) const;

  size_t count() const { return count_; }
  uint64_t step() const { return step_; }
  const float* m() const { return reinterpret_cast<const float*>(m_.data()); }
  const float* v() const { return reinterpret_cast<const float*>(v_.data()); }

 private:
  OneBitAdam(onebitComm_t comm, size_t count, float* parameters, const Options& options,
             SegmentTable table);
  Status Allocate(const onebitCompressorConfig_t* compressor_config);

  onebitStage_t stage() const { return frozen_at_ == 0 ? onebitStageDense : onebitStageCompressed; }
  Status WatchComm();
  Status CheckComm() const;
  Status PrepareStep(kernels::DataType type);
  Status Freeze();
  Status TakeState(onebitComm_t comm, int source, uint64_t newest);
  Status RebindCompressor(onebitComm_t comm);

  // The parts of a step. A false result is the verdict "not finite".
  Result<double> AgreeOnNorm(const StepInput& input);
  Result<bool> Average(const StepInput& input, float scale);
  Result<bool> AverageDense(void* gradients, size_t count, kernels::DataType type, float scale);
  Result<bool> AverageMomentum(const StepInput& input, float scale);
  void Update(const StepInput& input, float scale);
  void Commit(double learning_rate);

  void PackDenseGradients(const StepInput& input);
  float* MomentumBuffer(const StepInput& input) const;
  double Correction(double beta_power) const;
  void WarnWithoutWarmup(double learning_rate);
  uint64_t BytesSent() const;

  onebitComm_t comm_;
  const size_t count_;
  float* const parameters_;
  const Options options_;
  const SegmentTable table_;
  int rank_ = 0;

  AlignedBuffer m_, v_;
  AlignedBuffer
      momentum_scratch_;  // fp32; where compressed gradients cannot become momentum in place
  AlignedBuffer
      dense_scratch_;  // dense segments' gradients, joined, while the others are compressed
  onebitCompressor_t compressor_ = nullptr;  // null when nothing will ever be compressed
  onebitCompressor_t comm_watch_ = nullptr;  // of no element: tells whether comm_ is still there
  uint64_t nonfinite_calls_ = 0;             // of compressor_, as last seen

  FreezeRule freeze_rule_;
  FrozenVariance frozen_;
  uint64_t frozen_at_ = 0;         // T_w; 0 before
  double frozen_beta2_power_ = 0;  // beta2^T_w

  uint64_t step_ = 0;       // t
  double beta1_power_ = 1;  // beta1^t
  double beta2_power_ = 1;
  double first_learning_rate_ = 0;
  uint64_t compressed_steps_ = 0;
  bool awaits_residual_ = false;  // took over a compressed step whose residuals are to follow
  bool is_torn_ = false;          // a rebind failed while it overwrote parameters, m and v
  uint64_t skipped_steps_ = 0;
  uint64_t bytes_sent_ = 0;
};

}  // namespace onebit::optim
