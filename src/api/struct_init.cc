// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// onebitStructInit: what initialiser macros give C, for languages that cannot use them.
#include <cstring>

#include "api/handles.h"

namespace onebit {
namespace {

constexpr onebitConfig_t kConfig = ONEBIT_CONFIG_INIT;
constexpr onebitCommStats_t kCommStats = {.size = sizeof(onebitCommStats_t)};
constexpr onebitCompressorConfig_t kCompressorConfig = ONEBIT_COMPRESSOR_CONFIG_INIT;
constexpr onebitCompressorStats_t kCompressorStats = {.size = sizeof(onebitCompressorStats_t)};
constexpr onebitSyncSchedule_t kSyncSchedule = ONEBIT_SYNC_SCHEDULE_INIT;
constexpr onebitPolicyConfig_t kPolicyConfig = ONEBIT_POLICY_CONFIG_INIT;
constexpr onebitStepPlan_t kStepPlan = ONEBIT_STEP_PLAN_INIT;
constexpr onebitSegment_t kSegment = ONEBIT_SEGMENT_INIT;
constexpr onebitOptimizerConfig_t kOptimizerConfig = ONEBIT_OPTIMIZER_CONFIG_INIT;
constexpr onebitStepResult_t kStepResult = ONEBIT_STEP_RESULT_INIT;
constexpr onebitOptimizerStats_t kOptimizerStats = {.size = sizeof(onebitOptimizerStats_t)};
constexpr onebitTrustRatio_t kTrustRatio = ONEBIT_TRUST_RATIO_INIT;

// Bindings exist from these sizes on. When a structure grows, this function must accept its former
// size, too, and write that to `size`.
template <typename Structure>
Status Fill(const char* name, const Structure& initial, void* structure, size_t size) {
  if (size != sizeof(initial)) {
    return Error(
        Code::kInvalidArgument,
        "size is {}, but {} has {} bytes in this library: generate the bindings from its headers",
        size, name, sizeof(initial));
  }
  std::memcpy(structure, &initial, size);
  return OkStatus();
}

Status InitStruct(onebitStruct_t kind, void* structure, size_t size) {
  if (structure == nullptr) return Error(Code::kInvalidArgument, "structure is NULL");
  switch (kind) {
    case onebitStructConfig:
      return Fill("onebitConfig_t", kConfig, structure, size);
    case onebitStructCommStats:
      return Fill("onebitCommStats_t", kCommStats, structure, size);
    case onebitStructCompressorConfig:
      return Fill("onebitCompressorConfig_t", kCompressorConfig, structure, size);
    case onebitStructCompressorStats:
      return Fill("onebitCompressorStats_t", kCompressorStats, structure, size);
    case onebitStructSyncSchedule:
      return Fill("onebitSyncSchedule_t", kSyncSchedule, structure, size);
    case onebitStructPolicyConfig:
      return Fill("onebitPolicyConfig_t", kPolicyConfig, structure, size);
    case onebitStructStepPlan:
      return Fill("onebitStepPlan_t", kStepPlan, structure, size);
    case onebitStructSegment:
      return Fill("onebitSegment_t", kSegment, structure, size);
    case onebitStructOptimizerConfig:
      return Fill("onebitOptimizerConfig_t", kOptimizerConfig, structure, size);
    case onebitStructStepResult:
      return Fill("onebitStepResult_t", kStepResult, structure, size);
    case onebitStructOptimizerStats:
      return Fill("onebitOptimizerStats_t", kOptimizerStats, structure, size);
    case onebitStructTrustRatio:
      return Fill("onebitTrustRatio_t", kTrustRatio, structure, size);
  }
  return Error(Code::kInvalidArgument, "structure kind {} is unknown", static_cast<int>(kind));
}

}  // namespace
}  // namespace onebit

onebitResult_t onebitStructInit(onebitStruct_t kind, void* structure, size_t size) {
  return onebit::Guard([&] { return onebit::InitStruct(kind, structure, size); });
}
