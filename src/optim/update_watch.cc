// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/update_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optim/gradient_elements.h"
#include "optim/quiet_log.h"

namespace onebit::optim {
namespace {

// Runs of a sample, spread evenly, and elements of each.
constexpr size_t kRuns = 16;
constexpr size_t kRunElements = 1024;

}  // namespace

Status UpdateWatch::Allocate(const SegmentTable& table, const Arithmetic& arithmetic) {
  if (sample_count_ != 0) return OkStatus();
  std::vector<Run> runs;
  size_t sample_count = 0;
  const size_t count = table.compressed_count();
  size_t next = 0;  // number of the run that is looked for
  for (const Segment& segment : table.segments()) {
    if (segment.is_dense) continue;
    for (; next < kRuns; ++next) {
      const size_t begin = count / kRuns * next;
      const size_t end =
          std::min(begin + kRunElements, next + 1 < kRuns ? count / kRuns * (next + 1) : count);
      if (begin >= segment.packed_offset + segment.count) break;
      const size_t from = begin - segment.packed_offset;
      const size_t elements = std::min(end - begin, segment.count - from);
      if (elements == 0) continue;
      runs.push_back({segment.x + from, elements});
      sample_count += elements;
    }
  }
  ONEBIT_ASSIGN_OR_RETURN(ring_,
                          arithmetic.AllocateResults((kSteps + 1) * sample_count * sizeof(float)));
  runs_ = std::move(runs);
  sample_count_ = sample_count;
  return OkStatus();
}

float* UpdateWatch::sample(uint64_t step) const {
  return Floats(ring_) + step % (kSteps + 1) * sample_count_;
}

void UpdateWatch::Begin(const char* name, const char* remedy, double limit) {
  limit_ = limit;
  name_ = name;
  remedy_ = remedy;
  Forget();
  live_steps_ = 0;
  mean_movement_ = mean_rate_ = 0;
  steps_above_limit_ = 0;
  has_warned_ = false;
}

void UpdateWatch::Observe(double learning_rate, bool is_live, bool is_common,
                          Arithmetic* arithmetic) {
  if (sample_count_ == 0 || has_warned_) return;
  rate_since_ += learning_rate;
  if (!is_common) return;
  if (sampled_steps_ > kSteps) Judge();
  was_live_ = is_live;
  float* to = sample(sampled_steps_);
  for (const Run& run : runs_) {
    arithmetic->Copy(to, run.x, run.count * sizeof(float));
    to += run.count;
  }
  rates_[sampled_steps_ % rates_.size()] = std::exchange(rate_since_, 0);
  ++sampled_steps_;
}

// Judges the last sampled step.
void UpdateWatch::Judge() {
  const float* now = sample(sampled_steps_ - 1);
  const float* before = sample(sampled_steps_ - 1 - kSteps);
  double sum = 0;
  for (size_t i = 0; i < sample_count_; ++i) {
    const double moved = static_cast<double>(now[i]) - before[i];
    sum += moved * moved;
  }
  const double movement = std::sqrt(sum / static_cast<double>(sample_count_));
  double rate = 0;
  for (uint64_t back = 1; back <= kSteps; ++back) {
    rate += rates_[(sampled_steps_ - back) % rates_.size()];
  }
  if (!was_live_) return JudgeFrozen(movement, rate);
  ++live_steps_;
  const double weight =
      1 / static_cast<double>(std::min(live_steps_, std::max<uint64_t>(1, sampled_steps_ / 10)));
  mean_movement_ += weight * (movement - mean_movement_);
  mean_rate_ += weight * (rate - mean_rate_);
}

void UpdateWatch::JudgeFrozen(double movement, double rate) {
  if (!(mean_movement_ > 0) || !(mean_rate_ > 0)) {
    mean_movement_ = movement;
    mean_rate_ = rate;
    return;
  }
  // Movement grows with the rate where that still rises.
  const double expected = mean_movement_ * std::max(1.0, rate / mean_rate_);
  if (movement <= limit_ * expected) {
    steps_above_limit_ = 0;
    return;
  }
  if (++steps_above_limit_ < kStepsAboveLimit) return;
  has_warned_ = true;
  LogIfPossible(
      LogLevel::kWarn,
      "{}: parameters move {:.1f} times as far as {} (root mean square over {} steps): {}", name_,
      movement / expected, live_steps_ != 0 ? "before the freeze" : "when this run began", kSteps,
      remedy_);
}

}  // namespace onebit::optim
