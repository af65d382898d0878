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

// Elements of the sample, shared out between segments, and the most of a run in it.
constexpr size_t kSampleElements = 16'384;
constexpr size_t kLeastOfSegment = 16;
constexpr size_t kRunElements = 1024;

// Returns the sum of the squares of what elements have moved.
double SquaresOfMoves(const float* now, const float* before, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double moved = static_cast<double>(now[i]) - before[i];
    sum += moved * moved;
  }
  return sum;
}

}  // namespace

Status UpdateWatch::Allocate(const SegmentTable& table, const Arithmetic& arithmetic) {
  if (sample_count_ != 0) return OkStatus();
  const auto is_watched = [](const Segment& segment) {
    return !segment.is_dense && segment.count != 0;
  };
  const auto watched = static_cast<size_t>(std::ranges::count_if(table.segments(), is_watched));
  std::vector<Run> runs;
  std::vector<WatchedSegment> segments;
  size_t sample_count = 0;
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const Segment& segment = table.segments()[i];
    if (!is_watched(segment)) continue;
    const size_t share = std::max(kLeastOfSegment, kSampleElements / watched);
    const size_t elements = std::min(segment.count, share);
    const size_t run_count = (elements + kRunElements - 1) / kRunElements;
    for (size_t run = 0; run < run_count; ++run) {  // spread evenly
      const size_t begin = elements * run / run_count, end = elements * (run + 1) / run_count;
      runs.push_back({segment.x + segment.count / run_count * run, end - begin});
    }
    sample_count += elements;
    segments.push_back({.index = i, .sample_end = sample_count});
  }
  ONEBIT_ASSIGN_OR_RETURN(ring_,
                          arithmetic.AllocateResults((kSteps + 1) * sample_count * sizeof(float)));
  runs_ = std::move(runs);
  segments_ = std::move(segments);
  sample_count_ = sample_count;
  return OkStatus();
}

float* UpdateWatch::sample(uint64_t step) const {
  return Floats(ring_) + step % (kSteps + 1) * sample_count_;
}

void UpdateWatch::Begin(const char* name, const char* throws, const char* lags, double most) {
  most_ = most;
  name_ = name;
  throws_ = throws;
  lags_ = lags;
  Forget();
  live_steps_ = 0;
  all_ = {};
  for (WatchedSegment& segment : segments_) {
    segment.movement = {};
    segment.steps_above_limit = 0;
  }
  steps_below_least_ = 0;
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
  double rate = 0;
  for (uint64_t back = 1; back <= kSteps; ++back) {
    rate += rates_[(sampled_steps_ - back) % rates_.size()];
  }
  if (!(rate > 0)) return;
  const float* const now = sample(sampled_steps_ - 1);
  const float* const before = sample(sampled_steps_ - 1 - kSteps);
  double sum_of_all = 0;
  size_t begin = 0;
  const auto movement = [rate](double sum, size_t count) {
    return std::sqrt(sum / static_cast<double>(count)) / rate;
  };
  for (WatchedSegment& segment : segments_) {
    const size_t count = segment.sample_end - begin;
    const double sum = SquaresOfMoves(now + begin, before + begin, count);
    segment.movement.now = movement(sum, count);
    sum_of_all += sum;
    begin = segment.sample_end;
  }
  all_.now = movement(sum_of_all, sample_count_);
  if (!was_live_) return JudgeFrozen();
  ++live_steps_;
  const double weight =
      1 / static_cast<double>(std::min(live_steps_, std::max<uint64_t>(1, sampled_steps_ / 10)));
  const auto average = [weight](Movement* moved) {
    moved->mean += weight * (moved->now - moved->mean);
  };
  average(&all_);
  for (WatchedSegment& segment : segments_) average(&segment.movement);
}

void UpdateWatch::JudgeFrozen() {
  if (!(all_.mean > 0)) {  // this run began behind the freeze
    all_.mean = all_.now;
    for (WatchedSegment& segment : segments_) segment.movement.mean = segment.movement.now;
    return;
  }
  has_warned_ = WarnOfThrown() || WarnOfLagging();
}

bool UpdateWatch::WarnOfThrown() {
  const WatchedSegment* worst = nullptr;
  for (WatchedSegment& segment : segments_) {
    const Movement& moved = segment.movement;
    const bool is_above = moved.now > most_ || (moved.mean > 0 && moved.now > kLimit * moved.mean);
    segment.steps_above_limit = is_above ? segment.steps_above_limit + 1 : 0;
    if (segment.steps_above_limit < kStepsAboveLimit) continue;
    if (worst == nullptr || moved.now > worst->movement.now) worst = &segment;
  }
  if (worst == nullptr) return false;
  const Movement& moved = worst->movement;
  constexpr const char* kText =
      "{}: parameters of segments[{}] move by {:.3g} times the learning rate in a step (root mean "
      "square over {} steps), {:.3g} times as far as {}: {}";
  const double ratio = moved.mean > 0 ? moved.now / moved.mean : INFINITY;
  LogIfPossible(LogLevel::kWarn, kText, name_, worst->index, moved.now, kSteps, ratio, Since(),
                throws_);
  return true;
}

bool UpdateWatch::WarnOfLagging() {
  const double ratio = all_.now / all_.mean;
  steps_below_least_ = ratio < kLeast ? steps_below_least_ + 1 : 0;
  if (steps_below_least_ < kStepsBelowLeast) return false;
  LogIfPossible(LogLevel::kWarn,
                "{}: parameters move only {:.3f} times as far as {} (root mean square over {} "
                "steps, per unit of the learning rate), because gradients have become smaller than "
                "the frozen variance says: {}",
                name_, ratio, Since(), kSteps, lags_);
  return true;
}

const char* UpdateWatch::Since() const {
  return live_steps_ != 0 ? "before the freeze" : "when this run began";
}

}  // namespace onebit::optim
