// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Warns where parameters move much further after the freeze of the variance than before it, the
// beginning of a divergence, or hardly move any more: both otherwise show only in the loss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "optim/arithmetic.h"
#include "optim/segment_table.h"

namespace onebit::optim {

// Compares a sample of each segment with that of kSteps steps before, as a movement per unit of the
// learning rate. A single compressed step is mostly noise, many times as large as a dense one,
// which error feedback takes back in the steps after it; over kSteps a healthy run moves about as
// far as before the freeze. Where the watch begins after the freeze, as in a run that goes on from
// a checkpoint, the first kSteps that it sees are the measure.
//
// A segment by itself shows what a mean over all hides: a bias in front of a normalization can be
// thrown while everything else trains well.
//
// The sample is copied after each step and read after the next one, so that nothing waits for it.
class UpdateWatch {
 public:
  static constexpr uint64_t kSteps = 16;
  // The limits are set by 40 runs of ten models that ended as AdamW does, and by four in which
  // scales spanned biases in front of a normalization and that ended badly.
  //
  // Times the learning rate in a step; a step of Adam has about 1. Good runs: at most 9. Bad ones:
  // 6,000 to 46,000.
  static constexpr double kMost = 32;
  // Times the movement of dense steps. Good runs: at most 62, where the biases of a softmax had
  // hardly moved before. Bad ones of 1-bit Adam: 900,000.
  static constexpr double kLimit = 256;
  static constexpr int kStepsAboveLimit = 3;
  // The share of the movement of dense steps below which a frozen variance holds the whole model
  // back, because its gradients were larger when it was frozen. Good runs: at least 0.2.
  static constexpr double kLeast = 0.15;
  static constexpr int kStepsBelowLeast = 64;

  // Chooses the sample from the compressed segments, unless there is one. `table` must outlive this
  // object, which observes nothing before.
  Status Allocate(const SegmentTable& table, const Arithmetic& arithmetic);

  // Begins a dense stage. `throws` and `lags` end the warnings of what moves too far or too little.
  // `most`: instead of kMost, where steps have another size than Adam's.
  void Begin(const char* name, const char* throws, const char* lags, double most = kMost);
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
  // A movement per unit of the learning rate, and its mean before the freeze.
  struct Movement {
    double now = 0;
    double mean = 0;
  };
  struct WatchedSegment {
    size_t index = 0;       // in the table
    size_t sample_end = 0;  // behind its last element in the sample
    Movement movement;
    int steps_above_limit = 0;
  };

  float* sample(uint64_t step) const;
  void Judge();
  void JudgeFrozen();
  // True if they have warned.
  bool WarnOfThrown();
  bool WarnOfLagging();
  const char* Since() const;

  const char* name_ = "";
  const char* throws_ = "";
  const char* lags_ = "";
  double most_ = kMost;
  std::vector<Run> runs_;
  std::vector<WatchedSegment> segments_;
  size_t sample_count_ = 0;
  Memory ring_;                             // results: the last kSteps + 1 samples
  std::array<double, kSteps + 1> rates_{};  // learning rates, by the same index
  uint64_t sampled_steps_ = 0;
  double rate_since_ = 0;  // sum of learning rates after the last sampled step
  bool was_live_ = false;  // in the last sampled step
  // Steps of the dense stage so far, and means over about its last tenth; without such steps those
  // of the first kSteps.
  uint64_t live_steps_ = 0;
  Movement all_;
  int steps_below_least_ = 0;
  bool has_warned_ = false;
};

}  // namespace onebit::optim
