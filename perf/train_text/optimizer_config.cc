// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Defaults that depend on the run. Members that are left unset take the library's.
#include "perf/train_text/optimizer_config.h"

#include <algorithm>

#include "perf/common/codec_table.h"

namespace onebit::train {
namespace {

constexpr int64_t kFreezeShare = 5;  // freeze after 1/5 of the steps

onebitAlgorithm_t AlgorithmOf(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kOneBitAdam:
    case OptimizerKind::kShardedOneBitAdam:
      return onebitAlgorithmOneBitAdam;
    case OptimizerKind::kLamb:
    case OptimizerKind::kOneBitLamb:
      return onebitAlgorithmOneBitLamb;
    case OptimizerKind::kZeroOneAdam:
      return onebitAlgorithmZeroOneAdam;
  }
  return onebitAlgorithmOneBitAdam;
}

int64_t FreezeStep(const TrainOptions& options) {
  if (!Compresses(options.optimizer)) return ONEBIT_FREEZE_NEVER;
  const int64_t least = options.variant == onebitVariantDeepSpeed ? 2 : 1;  // step 1 is swallowed
  return options.freeze.value_or(std::max(least, options.steps / kFreezeShare));
}

void CompleteZeroOne(const TrainOptions& options, onebitOptimizerConfig_t* config) {
  if (config->varFreezeStep == ONEBIT_UNDEF_STEP) {
    config->varFreezeStep = std::max<int64_t>(1, options.steps / kFreezeShare);
  }
  const bool has_choice = options.variant == onebitVariantPaper &&
                          config->localStepScaler == ONEBIT_UNDEF_STEP &&
                          config->rateTied == ONEBIT_UNDEF_INT;
  if (has_choice) config->rateTied = 1;
}

}  // namespace

bool Compresses(OptimizerKind optimizer) {
  return optimizer != OptimizerKind::kAdam && optimizer != OptimizerKind::kLamb;
}

bool HasScalesOfTensors(const TrainOptions& options) {
  return Compresses(options.optimizer) && options.block != ONEBIT_BLOCK_TENSOR &&
         options.scales == onebitScalesSegment;
}

bool AveragesGradients(const TrainOptions& options) { return options.codec && !options.outer; }

bool IsSharded(OptimizerKind optimizer) { return optimizer == OptimizerKind::kShardedOneBitAdam; }

bool IsLamb(OptimizerKind optimizer) { return AlgorithmOf(optimizer) == onebitAlgorithmOneBitLamb; }

perf::CodecChoice CompressionOf(const TrainOptions& options) {
  perf::CodecChoice choice = {.codec = options.codec.value_or(onebitCodecSign),
                              .scale_rule = options.scale_rule,
                              .block = options.block};
  if (options.codec || Compresses(options.optimizer)) {
    choice.mode = options.mode == onebitModeEf ? perf::Mode::kEf : perf::Mode::kPlain;
  }
  return choice;
}

perf::CodecChoice GatherOf(const TrainOptions& options) {
  return {.mode = perf::Mode::kEf,
          .codec = options.gather,
          .block = perf::TraitsOf(options.gather).block};
}

double DefaultRate(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kOneBitAdam:
    case OptimizerKind::kShardedOneBitAdam:
    case OptimizerKind::kZeroOneAdam:
      return 3e-3;
    case OptimizerKind::kLamb:
      return 2e-2;
    case OptimizerKind::kOneBitLamb:
      return 1e-2;
  }
  return 0;
}

double VarianceFloorOf(const TrainOptions& options) {
  return options.variance_floor.value_or(options.variant == onebitVariantDeepSpeed ? 0 : 0.01);
}

onebitOptimizerConfig_t ConfigOf(const TrainOptions& options) {
  onebitOptimizerConfig_t config = options.rule;
  config.algorithm = AlgorithmOf(options.optimizer);
  config.variant = options.variant;
  config.beta1 = options.beta1;
  config.beta2 = options.beta2;
  config.weightDecay = options.weight_decay;
  if (Compresses(options.optimizer)) config.varianceFloor = VarianceFloorOf(options);
  if (HasScalesOfTensors(options)) {
    config.scales = onebitScalesSegment;
  } else if (Compresses(options.optimizer)) {
    config.scales = onebitScalesFused;
  }
  const bool is_two_stage = config.algorithm != onebitAlgorithmZeroOneAdam;
  // DeepSpeed's two stages do not depend on the warm-up: it must not be set.
  if (!is_two_stage || options.variant == onebitVariantPaper) {
    config.lrWarmupSteps = options.warmup_steps;
  }
  if (is_two_stage) {
    config.freezeStep = FreezeStep(options);
  } else {
    CompleteZeroOne(options, &config);
  }
  return config;
}

onebitCompressorConfig_t CompressorConfigOf(const TrainOptions& options) {
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  CompressionOf(options).Configure(&config);
  config.residualType = options.residual_type;
  config.serverResidual = options.server_residual ? 1 : 0;
  return config;
}

std::string ReportName(const char* flag) {
  std::string name = std::string(flag).substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace onebit::train
