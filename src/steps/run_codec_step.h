// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The function of a codec that a step is, on the host and on devices.
#pragma once

#include "plan/plan.h"

namespace onebit {

// Calls ops->Compress, Reduce, Average or Decode with `args`, as the step says. Returns `otherwise`
// for steps whose work does not depend on the codec.
template <typename Ops, typename Result, typename... Args>
Result RunCodecStep(const Step& step, Ops* ops, const Result& otherwise, const Args&... args) {
  switch (step.kind) {
    case StepKind::kCompress:
      return ops->Compress(args...);
    case StepKind::kReduce:
      return step.packet == kNoPacket ? ops->Average(args...) : ops->Reduce(args...);
    case StepKind::kDecode:
      return ops->Decode(args...);
    case StepKind::kStage:
    case StepKind::kHostSum:
    case StepKind::kCopy:
    case StepKind::kVerdict:
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kNative:
    case StepKind::kPack:
    case StepKind::kUnpack:
      break;
  }
  return otherwise;
}

}  // namespace onebit
