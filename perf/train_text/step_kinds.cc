// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Derives letters from the stages of steps. Compressed gradients and two kinds of DeepSpeed's
// variant do not show in the stages.
#include "perf/train_text/step_kinds.h"

#include <cstdint>

#include "perf/train_text/optimizer_config.h"

namespace onebit::train {
namespace {

char KindOfStage(onebitStage_t stage) {
  switch (stage) {
    case onebitStageDense:
      return 'F';
    case onebitStageCompressed:
      return '1';
    case onebitStageBoth:
      return 'B';
    case onebitStageLocal:
      return '.';
  }
  return '?';
}

}  // namespace

std::string StepKinds(const TrainOptions& options, std::span<const StepRecord> steps) {
  const bool is_deepspeed = options.variant == onebitVariantDeepSpeed;
  const bool is_zero_one = options.optimizer == OptimizerKind::kZeroOneAdam;
  const int64_t var_freeze_step = ConfigOf(options).varFreezeStep;
  std::string kinds;
  int64_t number = 1;  // as the library counts: a step that is skipped is made again
  for (const StepRecord& step : steps) {
    char kind = KindOfStage(step.stage);
    if (options.codec && kind == '1') kind = 'g';
    if (options.outer && kind != '.') kind = 'o';  // an outer average ended
    // DeepSpeed swallows the first step. After 0/1 Adam freezes its variance, it compresses sums of
    // steps instead of gradients, from the step after varFreezeStep on.
    if (is_deepspeed && number == 1) kind = 'i';
    if (is_deepspeed && is_zero_one && kind == '1' && number > var_freeze_step + 1) kind = 'u';
    kinds += kind;
    if (!step.is_skipped) ++number;
  }
  return kinds;
}

}  // namespace onebit::train
