// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Plans in words.
#include <string>

#include "perf/studies/soak/soak_plan.h"

namespace onebit::soak {
namespace {

const char* TypeText(onebitDataType_t type) {
  if (type == onebitFloat32) return "float";
  return type == onebitFloat16 ? "half" : "bfloat16";
}

std::string GroupText(const Plan& plan, int group) {
  std::string text = "communicator ";
  text.append(std::to_string(group)).append(" (ranks");
  for (const int rank : plan.groups[static_cast<size_t>(group)]) {
    text.append(" ").append(std::to_string(rank));
  }
  return text.append(")");
}

std::string TensorText(const TensorSpec& spec) {
  std::string text = spec.mode == onebitModeEf ? "ef" : "sign";
  text.append(spec.scale_rule == onebitScaleL1 ? " l1" : " l2").append(" block ");
  text.append(spec.block == ONEBIT_BLOCK_TENSOR ? "tensor" : std::to_string(spec.block));
  text.append(" alignment ").append(std::to_string(spec.chunk_alignment));
  if (spec.residual_type == onebitBfloat16) text.append(", bfloat16 residuals");
  if (!spec.is_transactional) text.append(", not transactional");
  if (!spec.has_server_residual) text.append(", no server residual");
  if (!spec.mask.empty()) text.append(", masked");
  return text;
}

}  // namespace

const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kSplit:
      return "split";
    case ActionKind::kShrink:
      return "shrink";
    case ActionKind::kDestroyGroup:
      return "destroy";
    case ActionKind::kCreateTensor:
      return "create";
    case ActionKind::kRebind:
      return "rebind";
    case ActionKind::kReset:
      return "reset";
    case ActionKind::kDestroyTensor:
      return "free";
    case ActionKind::kDense:
      return "dense";
    case ActionKind::kCompressed:
      return "compressed";
    case ActionKind::kBroadcast:
      return "broadcast";
    case ActionKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Describe(const Plan& plan, size_t index) {
  const Action& action = plan.actions[index];
  std::string text = "action ";
  text.append(std::to_string(index)).append(": ").append(NameOf(action.kind));
  if (action.tensor >= 0) {
    const TensorSpec& spec = plan.tensors[static_cast<size_t>(action.tensor)];
    text.append(" tensor ").append(std::to_string(action.tensor));
    text.append(" (").append(TensorText(spec)).append(")");
  }
  if (action.kind != ActionKind::kDestroyTensor) {
    text.append(" on ").append(GroupText(plan, action.group));
  }
  if (!IsCall(action.kind) || action.kind == ActionKind::kBarrier) return text;
  text.append(", ").append(std::to_string(action.count)).append(" x ");
  text.append(TypeText(action.type));
  if (action.kind == ActionKind::kBroadcast) {
    text.append(" from rank ").append(std::to_string(action.root));
  } else {
    text.append(action.op == onebitSum ? " sum" : " avg");
  }
  if (action.is_in_place) text.append(" in place");
  if (action.nan_rank >= 0) {
    text.append(", a NaN at ").append(std::to_string(action.nan_index));
    text.append(" of rank ").append(std::to_string(action.nan_rank));
  }
  return text;
}

}  // namespace onebit::soak
