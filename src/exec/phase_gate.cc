// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/phase_gate.h"

namespace onebit {

bool PhaseGate::IsComputedStep(uint32_t step) const {
  const Step& one = plan_->steps[step];
  switch (one.kind) {
    case StepKind::kStage:
    case StepKind::kCompress:
    case StepKind::kHostSum:
    case StepKind::kReduce:
    case StepKind::kDecode:
    case StepKind::kVerdict:
    case StepKind::kCopy:
      return calls_[one.call].is_on_device();
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kNative:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
  return false;
}

size_t PhaseGate::CountLastSteps() const {
  if (is_open()) return 0;
  size_t count = 0;
  for (const uint32_t step : turns_->order->compute(plan_->exchanges)) {
    count += IsComputedStep(step);
  }
  return count;
}

}  // namespace onebit
