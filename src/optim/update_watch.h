// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warns where parameters move much further after the freeze of the variance than before it: the
// beginning of a divergence, which otherwise shows only in the loss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "optim/arithmetic.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// Compares a sample of the parameters with that of kSteps steps before. A single compressed step is
// mostly noise, many times as large as a dense one, which error feedback takes back in the steps
// after it; over kSteps a healthy run moves as far as before the freeze. Where the watch begins
// after the freeze, as in a run that goes on from a checkpoint, the first kSteps that it sees are
// the measure.
//
// The sample is copied after each step and read after the next one, so that nothing waits for it.
class UpdateWatch {
 public:
  static constexpr uint64_t kSteps = 16;
  // Times the mean movement of dense steps. Healthy runs of 1-bit Adam mostly stay below 1.2 times,
  // but one has reached 4.0; those of 0/1 Adam, which averages rarely, stay below 6.
  static constexpr double kLimit = 8, kLimitWithLocalSteps = 16;
  static constexpr int kStepsAboveLimit = 3;

  // Chooses the sample from the compressed segments, unless there is one. `table` must outlive this
  // object, which observes nothing before.
  Status Allocate(const SegmentTable& table, const Arithmetic& arithmetic);

  // Begins a dense stage. `remedy` ends the warning.
  void Begin(const char* name, const char* remedy, double limit);
  // Forgets the sample, because parameters were replaced.
  void Forget() { sampled_steps_ = 0, rate_since_ = 0; }
  // Takes part in a step that moved the parameters; `is_live` if it updated the variance. Steps
  // after which ranks differ count as parts of the next one after which they do not: the noise is
  // that of averages.
  void Observe(double learning_rate, bool is_live, bool is_common, Arithmetic* arithmetic);

 private:
  struct Run {
    const float* x = nullptr;
    size_t count = 0;
  };

  float* sample(uint64_t step) const;
  void Judge();
  void JudgeFrozen(double movement, double rate);

  const char* name_ = "";
  const char* remedy_ = "";
  double limit_ = kLimit;
  std::vector<Run> runs_;
  size_t sample_count_ = 0;
  Memory ring_;                             // results: the last kSteps + 1 samples
  std::array<double, kSteps + 1> rates_{};  // learning rates, by the same index
  uint64_t sampled_steps_ = 0;
  double rate_since_ = 0;  // sum of learning rates after the last sampled step
  bool was_live_ = false;  // in the last sampled step
  // Steps of the dense stage so far, and means over about its last tenth; without such steps those
  // of the first kSteps.
  uint64_t live_steps_ = 0;
  double mean_movement_ = 0, mean_rate_ = 0;
  int steps_above_limit_ = 0;
  bool has_warned_ = false;
};

}  // namespace onebit::optim
