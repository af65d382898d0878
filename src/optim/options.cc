// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/options.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/config_head.h"

namespace onebit::optim {
namespace {

Result<double> ReadDecay(std::string_view member, double value, double fallback) {
  ONEBIT_ASSIGN_OR_RETURN(const double decay, ReadReal(member, value, fallback));
  if (static_cast<float>(decay) >= 1.0f) {
    return Error(Code::kInvalidArgument, "{} is {}, but must be in [0, 1)", member, decay);
  }
  return decay;
}

// The structure ended before `clipNorm` at first.
constexpr std::array<size_t, 1> kFormerSizes = {offsetof(onebitOptimizerConfig_t, clipNorm)};

// Returns the caller's structure with all members that this library knows.
Result<onebitOptimizerConfig_t> ReadConfig(const onebitOptimizerConfig_t& given) {
  ONEBIT_TRY(CheckConfigHead(
      "optimizer config", "ONEBIT_OPTIMIZER_CONFIG_INIT", {given.size, given.magic, given.version},
      {sizeof(given), ONEBIT_CONFIG_MAGIC, ONEBIT_VERSION_CODE}, kFormerSizes));
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  std::memcpy(&config, &given, given.size);
  return config;
}

// Checked by the policies' own code, which uses the same names for the members.
Result<PolicyOptions> ReadPolicy(const onebitOptimizerConfig_t& config) {
  onebitPolicyConfig_t policy = ONEBIT_POLICY_CONFIG_INIT;
  policy.algorithm = config.algorithm;
  policy.variant = config.variant;
  // All optimizers have a beta2, but only policies that may freeze automatically do.
  if (config.algorithm != onebitAlgorithmZeroOneAdam && config.variant != onebitVariantDeepSpeed) {
    policy.beta2 = config.beta2;
  }
  policy.freezeStep = config.freezeStep;
  policy.lrWarmupSteps = config.lrWarmupSteps;
  policy.varFreezeStep = config.varFreezeStep;
  policy.varUpdateScaler = config.varUpdateScaler;
  policy.localStepScaler = config.localStepScaler;
  policy.localStepClipper = config.localStepClipper;
  policy.localStepStart = config.localStepStart;
  policy.rateTied = config.rateTied;
  policy.denseStepFeedsMomentum = config.denseStepFeedsMomentum;
  return ReadPolicyOptions(policy);
}

Result<LambOptions> ReadLamb(const onebitOptimizerConfig_t& config) {
  LambOptions lamb;
  struct Member {
    const char* name;
    double value;
    double* option;
  };
  const std::array<Member, 6> members = {
      {{"minCoeff", config.minCoeff, &lamb.min_coefficient},
       {"maxCoeff", config.maxCoeff, &lamb.max_coefficient},
       {"coeffBeta", config.coeffBeta, &lamb.beta},
       {"factorMin", config.factorMin, &lamb.min_factor},
       {"factorMax", config.factorMax, &lamb.max_factor},
       {"factorThreshold", config.factorThreshold, &lamb.threshold}}};
  for (const Member& member : members) {
    if (member.value != ONEBIT_UNDEF_REAL && config.algorithm != onebitAlgorithmOneBitLamb) {
      return Error(Code::kInvalidArgument, "{} is {}, but only onebitAlgorithmOneBitLamb uses it",
                   member.name, member.value);
    }
    ONEBIT_ASSIGN_OR_RETURN(*member.option, ReadReal(member.name, member.value, *member.option));
  }
  const auto check_order = [](const char* less, double least, const char* more, double most) {
    if (least <= most) return OkStatus();
    return Error(Code::kInvalidArgument, "{} is {}, but must not exceed {}, which is {}", less,
                 least, more, most);
  };
  ONEBIT_TRY(check_order("minCoeff", lamb.min_coefficient, "maxCoeff", lamb.max_coefficient));
  ONEBIT_TRY(check_order("factorMin", lamb.min_factor, "factorMax", lamb.max_factor));
  if (lamb.min_factor == 0) {
    return Error(Code::kInvalidArgument,
                 "factorMin is 0, but must be positive: a factor of 0 could "
                 "never rise again");
  }
  ONEBIT_ASSIGN_OR_RETURN(lamb.beta, ReadDecay("coeffBeta", lamb.beta, lamb.beta));
  ONEBIT_ASSIGN_OR_RETURN(lamb.threshold,
                          ReadDecay("factorThreshold", lamb.threshold, lamb.threshold));
  lamb.skips_ratio_one = config.variant == onebitVariantDeepSpeed;
  return lamb;
}

// Reads if moments are multiplied by 1 / (1 - beta^t).
Result<bool> ReadBiasCorrection(const onebitOptimizerConfig_t& config) {
  if (config.biasCorrection == ONEBIT_UNDEF_INT) return false;
  if (config.biasCorrection != 0 && config.biasCorrection != 1) {
    return Error(Code::kInvalidArgument, "biasCorrection is {}, but must be 0 or 1",
                 config.biasCorrection);
  }
  if (config.biasCorrection == 0) return false;
  if (config.algorithm == onebitAlgorithmZeroOneAdam) {
    return Error(Code::kInvalidArgument,
                 "biasCorrection is 1, but 0/1 Adam has none: its momentum is a mean over an "
                 "interval; raise the learning rate over the first steps instead");
  }
  if (config.variant == onebitVariantDeepSpeed) {
    return Error(Code::kInvalidArgument,
                 "biasCorrection is 1, but DeepSpeed ignores it: leave it undefined, or set "
                 "onebitVariantPaper");
  }
  return true;
}

// Reads if max_grad_norm limits the norm of averages.
Result<bool> ReadClipNorm(const onebitOptimizerConfig_t& config) {
  switch (config.clipNorm) {
    case ONEBIT_UNDEF_INT:
    case onebitClipMeanSquare:
      return false;
    case onebitClipAverage:
      return true;
  }
  return Error(Code::kInvalidArgument,
               "clipNorm is {}, but must be onebitClipMeanSquare ({}) or onebitClipAverage ({})",
               config.clipNorm, static_cast<int>(onebitClipMeanSquare),
               static_cast<int>(onebitClipAverage));
}

Status ReadCopy(const onebitOptimizerConfig_t& config, Options* options) {
  const bool is_needed = config.parameterCopy != nullptr;
  if (!is_needed && config.parameterCopyType == ONEBIT_UNDEF_INT) return OkStatus();
  if (config.parameterCopyType == ONEBIT_UNDEF_INT || config.parameterCopyType == onebitFloat32) {
    return Error(Code::kInvalidArgument,
                 "parameterCopyType {}, but must be onebitFloat16 or onebitBfloat16",
                 config.parameterCopyType == onebitFloat32 ? "is onebitFloat32" : "was not set");
  }
  ONEBIT_ASSIGN_OR_RETURN(options->parameter_copy_type,
                          ReadDataType("parameterCopyType", config.parameterCopyType));
  if (reinterpret_cast<uintptr_t>(config.parameterCopy) % 2 != 0) {
    return Error(Code::kInvalidArgument, "parameterCopy is not aligned to its element type");
  }
  options->parameter_copy = config.parameterCopy;
  return OkStatus();
}

// Reads if scales may span segments. A compressor that cannot restart its blocks decides by
// default.
Result<bool> ReadScales(const onebitOptimizerConfig_t& config) {
  const onebitCompressorConfig_t* const compressor = config.compressor;
  const bool has_blocks_of_signs =
      compressor == nullptr ||
      (compressor->block != ONEBIT_BLOCK_TENSOR &&
       (compressor->codec == ONEBIT_UNDEF_INT || compressor->codec == onebitCodecSign));
  switch (config.scales) {
    case ONEBIT_UNDEF_INT:
    case 0:  // left by callers that were compiled before the member existed
      return !has_blocks_of_signs;
    case onebitScalesFused:
      return true;
    case onebitScalesSegment:
      if (has_blocks_of_signs) return false;
      return Error(Code::kInvalidArgument,
                   "scales is onebitScalesSegment, which needs a compressor with blocks of signs: "
                   "leave its block and codec undefined, or set onebitScalesFused");
    default:
      return Error(Code::kInvalidArgument,
                   "scales is {}, but must be onebitScalesSegment ({}) or onebitScalesFused ({})",
                   config.scales, static_cast<int>(onebitScalesSegment),
                   static_cast<int>(onebitScalesFused));
  }
}

// onebitCompressorCreate checks the other members.
Status CheckCompressor(const onebitCompressorConfig_t* compressor) {
  if (compressor == nullptr) return OkStatus();
  const bool has_cuts = compressor->size == sizeof(onebitCompressorConfig_t);
  if (!has_cuts && compressor->size != offsetof(onebitCompressorConfig_t, cuts)) {
    return Error(Code::kInvalidArgument,
                 "compressor->size is {}: start from ONEBIT_COMPRESSOR_CONFIG_INIT",
                 compressor->size);
  }
  if (compressor->mask != nullptr) {
    return Error(Code::kInvalidArgument,
                 "compressor->mask must be NULL: set the mask of segments instead");
  }
  if (has_cuts && compressor->cutCount != 0) {
    return Error(Code::kInvalidArgument,
                 "compressor->cutCount must be 0: blocks restart at segments (scales)");
  }
  return OkStatus();
}

}  // namespace

Result<Options> ReadOptions(const onebitOptimizerConfig_t* given) {
  Options options;
  if (given == nullptr) return options;

  ONEBIT_ASSIGN_OR_RETURN(const onebitOptimizerConfig_t config, ReadConfig(*given));
  ONEBIT_ASSIGN_OR_RETURN(options.beta1, ReadDecay("beta1", config.beta1, options.beta1));
  ONEBIT_ASSIGN_OR_RETURN(options.beta2, ReadDecay("beta2", config.beta2, options.beta2));
  ONEBIT_ASSIGN_OR_RETURN(options.eps, ReadReal("eps", config.eps, options.eps));
  if (static_cast<float>(options.eps) == 0.0f) {
    return Error(Code::kInvalidArgument,
                 "eps is {}, but must be positive in fp32: it divides where no gradient was seen",
                 options.eps);
  }
  ONEBIT_ASSIGN_OR_RETURN(options.weight_decay,
                          ReadReal("weightDecay", config.weightDecay, options.weight_decay));
  if (config.algorithm == onebitAlgorithmZeroOneAdam) options.variance_floor = 0.1;
  if (config.variant == onebitVariantDeepSpeed) options.variance_floor = 0;
  ONEBIT_ASSIGN_OR_RETURN(options.variance_floor,
                          ReadReal("varianceFloor", config.varianceFloor, options.variance_floor));
  ONEBIT_ASSIGN_OR_RETURN(options.has_bias_correction, ReadBiasCorrection(config));
  ONEBIT_ASSIGN_OR_RETURN(options.clips_average, ReadClipNorm(config));
  ONEBIT_ASSIGN_OR_RETURN(options.policy, ReadPolicy(config));
  if (options.policy.freeze_step == ONEBIT_FREEZE_SETTLED && !options.has_bias_correction) {
    return Error(Code::kInvalidArgument,
                 "freezeStep is ONEBIT_FREEZE_SETTLED, which needs biasCorrection = 1: without it "
                 "v itself keeps growing for several times 1 / (1 - beta2) steps");
  }
  ONEBIT_ASSIGN_OR_RETURN(options.lamb, ReadLamb(config));
  ONEBIT_TRY(ReadCopy(config, &options));
  ONEBIT_TRY(CheckCompressor(config.compressor));
  ONEBIT_ASSIGN_OR_RETURN(options.has_fused_scales, ReadScales(config));
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
