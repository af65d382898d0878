// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// 1-bit Adam whose moments are divided among the ranks, over the public calls. It is the optimizer
// of onebit.torch.optim.ShardedOnebitAdam, whose documentation says why it is as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "onebit/onebit.hpp"
#include "onebit/optim.h"
#include "perf/common/codec_choice.h"
#include "perf/train_text/model.h"
#include "perf/train_text/train_options.h"

namespace onebit::train {

/** Not thread-safe. Functions throw perf::ToolError if a call fails. */
class ShardedAdam {
 public:
  /** Borrows all but the options. All ranks have the same parameters, and make theirs in one order.
   */
  ShardedAdam(const TrainOptions& options, onebitComm_t comm, std::span<const Tensor> tensors,
              std::span<float> parameters);

  /** Averages gradients, of options.gradient_type, and steps. Collective. */
  void Step(const void* gradients, double rate, onebitStepResult_t* result);

  onebitOptimizerStats_t Stats() const;
  /** The largest difference of the own part from what all ranks hold of it. */
  double lag() const;
  /** Returns the bytes that this rank has sent in its steps, by formula, if they passed in one
   * level. */
  uint64_t ExpectedBytes() const;

 private:
  /** The piece of a tensor that is in this rank's part. */
  struct Slice {
    size_t tensor = 0;
    size_t begin = 0;  // in the part
    size_t end = 0;
  };

  bool is_frozen() const { return frozen_at_ > 0; }
  std::span<float> own() { return std::span(scratch_).subspan(rank_ * part_, part_); }
  void Fill(const void* gradients);
  bool Average();
  bool AverageDense();
  bool AverageCompressed();
  void Update(double rate);
  bool Gather();
  void Freeze();
  void MeasureTensors();
  void SetDenominators();
  void ShareUnits();
  void Prime();
  double Correction(double beta, uint64_t step) const;
  void ForEachMessage(uint64_t* count, const std::function<void()>& calls) const;

  const onebitComm_t comm_;
  const std::span<const Tensor> tensors_;
  const std::span<float> parameters_;  // what all ranks hold
  const onebitOptimizerConfig_t config_;
  const onebitDataType_t gradient_type_;
  const double gradient_scale_;
  const bool has_units_;
  const perf::CodecChoice gradient_codec_, gather_codec_;
  const size_t rank_, ranks_;
  const size_t part_;  // elements of a rank's part; parts behind the last parameter are padding
  std::vector<Slice> slices_;
  std::vector<float> scratch_;  // of all parts: gradients, then what all ranks hold
  std::vector<float> m_, v_, x_;
  std::vector<float> next_m_, next_x_;
  std::vector<float> denominators_;  // of the frozen variance
  std::vector<double> means_;        // of v over each tensor, at the freeze
  std::vector<uint8_t> exponents_;   // of the units in which gradients of all parts travel
  UniqueCompressor scatter_, gather_;
  uint64_t step_ = 0, dense_steps_ = 0, compressed_steps_ = 0, skipped_ = 0, frozen_at_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t dense_messages_ = 0, freeze_messages_ = 0;  // of a dense step, of the freeze
};

}  // namespace onebit::train
