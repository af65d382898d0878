// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/stream_order.h"

#include <algorithm>

namespace onebit {

void StreamOrder::Reserve(const Plan& plan) {
  const size_t steps = plan.steps.size();
  for (auto* list : {&compute[0], &compute[1], &compute[2], &sends[0], &sends[1], &receives[0],
                     &receives[1], &waiting_for, &phase, &ready}) {
    list->reserve(steps);
  }
}

// A step belongs to the phase after the last exchange it depends on, or to the first phase if it
// depends on no message.
void StreamOrder::Arrange(const Plan& plan) {
  const auto steps = static_cast<uint32_t>(plan.steps.size());
  for (auto* list :
       {&compute[0], &compute[1], &compute[2], &sends[0], &sends[1], &receives[0], &receives[1]}) {
    list->clear();
  }
  waiting_for.resize(steps);
  phase.assign(steps, 0);
  ready.clear();
  for (uint32_t step = 0; step < steps; ++step) {
    waiting_for[step] = plan.steps[step].dependency_count;
    if (waiting_for[step] == 0) ready.push_back(step);
  }
  for (size_t next = 0; next < ready.size(); ++next) {
    const uint32_t index = ready[next];
    const Step& step = plan.steps[index];
    if (step.kind == StepKind::kReceive) {
      phase[index] = step.exchange;
      receives[step.exchange - 1].push_back(index);
    } else if (step.kind == StepKind::kSend) {
      phase[index] = step.exchange;  // whatever waits for a send waits for its exchange
      sends[step.exchange - 1].push_back(index);
    } else {
      compute[phase[index]].push_back(index);
    }
    for (uint32_t i = 0; i < step.successor_count; ++i) {
      const uint32_t successor = plan.successors[step.first_successor + i];
      phase[successor] = std::max(phase[successor], phase[index]);
      if (--waiting_for[successor] == 0) ready.push_back(successor);
    }
  }
}

}  // namespace onebit
