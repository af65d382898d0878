// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/options.h"

#include <cmath>
#include <limits>

#include "base/config_head.h"
#include "schedule/freeze_rule.h"

namespace onebit::optim {
namespace {

Result<double> ReadDecay(std::string_view member, double value, double fallback) {
  ONEBIT_ASSIGN_OR_RETURN(const double decay, ReadReal(member, value, fallback));
  if (static_cast<float>(decay) >= 1.0f) {
    return Error(Code::kInvalidArgument, "{} is {}, but must be in [0, 1)", member, decay);
  }
  return decay;
}

Status CheckHead(const onebitOptimizerConfig_t& config) {
  ONEBIT_TRY(CheckConfigHead("optimizer config", "ONEBIT_OPTIMIZER_CONFIG_INIT",
                             {config.size, config.magic, config.version},
                             {sizeof(config), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE}));
  if (config.algorithm != ONEBIT_UNDEF_INT && config.algorithm != onebitAlgorithmOneBitAdam) {
    return Error(Code::kInvalidArgument,
                 "algorithm is {}, but must be onebitAlgorithmOneBitAdam ({})", config.algorithm,
                 static_cast<int>(onebitAlgorithmOneBitAdam));
  }
  return OkStatus();
}

Status ReadFreeze(const onebitOptimizerConfig_t& config, Options* options) {
  if (config.lrWarmupSteps < 0) {
    return Error(Code::kInvalidArgument, "lrWarmupSteps is {}, but must not be negative",
                 config.lrWarmupSteps);
  }
  options->lr_warmup_steps = static_cast<uint64_t>(config.lrWarmupSteps);
  options->freeze_step = config.freezeStep;
  if (config.freezeStep == ONEBIT_FREEZE_AUTOMATIC) {
    if (AutomaticFreeze::Window(options->beta2) > AutomaticFreeze::kMaxWindow) {
      return Error(Code::kInvalidArgument,
                   "beta2 is {}, but the automatic freeze needs at most 1 - 1e-6: set freezeStep",
                   options->beta2);
    }
  } else if (config.freezeStep < 1) {
    return Error(Code::kInvalidArgument,
                 "freezeStep is {}, but must be at least 1 (without dense steps there is no "
                 "variance), ONEBIT_FREEZE_AUTOMATIC or ONEBIT_FREEZE_NEVER",
                 config.freezeStep);
  }
  return OkStatus();
}

Status ReadCopy(const onebitOptimizerConfig_t& config, Options* options) {
  if (config.parameterCopy == nullptr) return OkStatus();
  if (config.parameterCopyType == onebitFloat32) {
    return Error(Code::kInvalidArgument,
                 "parameterCopyType is onebitFloat32, but must be onebitFloat16 or onebitBfloat16");
  }
  ONEBIT_ASSIGN_OR_RETURN(options->parameter_copy_type,
                          ReadDataType("parameterCopyType", config.parameterCopyType));
  if (reinterpret_cast<uintptr_t>(config.parameterCopy) % 2 != 0) {
    return Error(Code::kInvalidArgument, "parameterCopy is not aligned to its element type");
  }
  options->parameter_copy = config.parameterCopy;
  return OkStatus();
}

// Other members are checked where they are known, by onebitCompressorCreate.
Status CheckCompressor(const onebitCompressorConfig_t* compressor) {
  if (compressor == nullptr) return OkStatus();
  if (compressor->size != sizeof(onebitCompressorConfig_t)) {
    return Error(Code::kInvalidArgument,
                 "compressor->size is {}: start from ONEBIT_COMPRESSOR_CONFIG_INIT",
                 compressor->size);
  }
  if (compressor->mask != nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor->mask must be NULL: set the mask of segments instead");
  }
  return OkStatus();
}

}  // namespace

Result<Options> ReadOptions(const onebitOptimizerConfig_t* config) {
  Options options;
  if (config == nullptr) return options;

  ONEBIT_TRY(CheckHead(*config));
  ONEBIT_ASSIGN_OR_RETURN(options.beta1, ReadDecay("beta1", config->beta1, options.beta1));
  ONEBIT_ASSIGN_OR_RETURN(options.beta2, ReadDecay("beta2", config->beta2, options.beta2));
  ONEBIT_ASSIGN_OR_RETURN(options.eps, ReadReal("eps", config->eps, options.eps));
  if (static_cast<float>(options.eps) == 0.0f) {
    return Error(Code::kInvalidArgument,
                 "eps is {}, but must be positive in fp32: it divides where no gradient was seen",
                 options.eps);
  }
  ONEBIT_ASSIGN_OR_RETURN(options.weight_decay,
                          ReadReal("weightDecay", config->weightDecay, options.weight_decay));
  ONEBIT_ASSIGN_OR_RETURN(options.variance_floor,
                          ReadReal("varianceFloor", config->varianceFloor, options.variance_floor));
  if (config->biasCorrection != ONEBIT_UNDEF_INT) {
    if (config->biasCorrection != 0 && config->biasCorrection != 1) {
      return Error(Code::kInvalidArgument, "biasCorrection is {}, but must be 0 or 1",
                   config->biasCorrection);
    }
    options.has_bias_correction = config->biasCorrection == 1;
  }
  ONEBIT_TRY(ReadFreeze(*config, &options));
  ONEBIT_TRY(ReadCopy(*config, &options));
  ONEBIT_TRY(CheckCompressor(config->compressor));
  return options;
}

const char* NameOf(onebitAlgorithm_t algorithm) {
  switch (algorithm) {
    case onebitAlgorithmOneBitAdam:
      return "1-bit adam";
    case onebitAlgorithmOneBitLamb:
      return "1-bit lamb";
    case onebitAlgorithmZeroOneAdam:
      return "0/1 adam";
  }
  return "optimizer";
}

Result<double> ReadReal(std::string_view member, double value, double fallback) {
  if (value == ONEBIT_UNDEF_REAL) return fallback;
  if (!(value >= 0) || value > std::numeric_limits<float>::max()) {
    return Error(Code::kInvalidArgument, "{} is {}, but must be finite and not negative", member,
                 value);
  }
  return value;
}

Result<kernels::DataType> ReadDataType(std::string_view member, int32_t type) {
  switch (type) {
    case onebitFloat32:
      return kernels::DataType::kF32;
    case onebitFloat16:
      return kernels::DataType::kF16;
    case onebitBfloat16:
      return kernels::DataType::kBf16;
  }
  return Error(
      Code::kInvalidArgument,
      "{} is {}, but must be onebitFloat32 ({}), onebitFloat16 ({}) or onebitBfloat16 ({})", member,
      type, static_cast<int>(onebitFloat32), static_cast<int>(onebitFloat16),
      static_cast<int>(onebitBfloat16));
}

}  // namespace onebit::optim
