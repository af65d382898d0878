// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plan/stream_order.h"

#include <algorithm>

namespace onebit {
namespace {

bool IsMessage(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive;
}

}  // namespace

void StreamOrder::Reserve(const Plan& plan) {
  const size_t exchanges = plan.exchanges;
  compute_.resize(std::max(compute_.size(), exchanges + 1));
  sends_.resize(std::max(sends_.size(), exchanges));
  receives_.resize(std::max(receives_.size(), exchanges));
  const size_t steps = plan.steps.size();
  for (auto* lists : {&compute_, &sends_, &receives_}) {
    for (auto& list : *lists) list.reserve(steps);
  }
  for (auto* list : {&waiting_for_, &phase_, &ready_}) list->reserve(steps);
}

// A step belongs to the phase after the last exchange it depends on, or to the first phase if it
// depends on no message.
void StreamOrder::Arrange(const Plan& plan) {
  Reserve(plan);
  exchanges_ = plan.exchanges;
  for (auto* lists : {&compute_, &sends_, &receives_}) {
    for (auto& list : *lists) list.clear();
  }
  const auto steps = static_cast<uint32_t>(plan.steps.size());
  waiting_for_.resize(steps);
  phase_.assign(steps, 0);
  ready_.clear();
  for (uint32_t step = 0; step < steps; ++step) {
    waiting_for_[step] = plan.steps[step].dependency_count;
    if (waiting_for_[step] == 0) ready_.push_back(step);
  }
  for (size_t next = 0; next < ready_.size(); ++next) {
    const uint32_t index = ready_[next];
    const Step& step = plan.steps[index];
    // A step that waits for a message waits for its whole exchange.
    if (IsMessage(step)) phase_[index] = step.exchange;
    if (step.kind == StepKind::kReceive) {
      receives_[step.exchange - 1u].push_back(index);
    } else if (step.kind == StepKind::kSend) {
      sends_[step.exchange - 1u].push_back(index);
    } else {
      compute_[phase_[index]].push_back(index);
    }
    for (uint32_t i = 0; i < step.successor_count; ++i) {
      const uint32_t successor = plan.successors[step.first_successor + i];
      phase_[successor] = std::max(phase_[successor], phase_[index]);
      if (--waiting_for_[successor] == 0) ready_.push_back(successor);
    }
  }
  if (plan.key.has_two_levels) SortMessages(plan);
}

// Inside hosts two ranks exchange several messages at once, which have to meet in one order.
void StreamOrder::SortMessages(const Plan& plan) {
  const auto segment_of = [&](uint32_t index) {
    return std::pair(plan.steps[index].segment, index);
  };
  for (auto* lists : {&sends_, &receives_}) {
    for (auto& list : *lists) std::ranges::sort(list, {}, segment_of);
  }
}

}  // namespace onebit
