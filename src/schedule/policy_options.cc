// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policy_options.h"

#include <string_view>

namespace onebit {
namespace {

bool IsSet(int64_t steps) { return steps != ONEBIT_UNDEF_STEP; }
bool IsSet(int32_t value) { return value != ONEBIT_UNDEF_INT; }
bool IsSet(double value) { return value != ONEBIT_UNDEF_REAL; }

// A member without effect is an error, because whoever set it expects an effect.
template <typename T>
Status CheckNotSet(std::string_view member, T value, std::string_view reason) {
  if (!IsSet(value)) return OkStatus();
  return Error(Code::kInvalidArgument, "{} is set to {}, but {}: leave it as initialised", member,
               value, reason);
}

Result<uint64_t> ReadSteps(std::string_view member, int64_t steps, int64_t least,
                           uint64_t fallback) {
  if (!IsSet(steps)) return fallback;
  if (steps < least) {
    return Error(Code::kInvalidArgument, "{} is {}, but must be at least {}", member, steps, least);
  }
  return static_cast<uint64_t>(steps);
}

Result<bool> ReadSwitch(std::string_view member, int32_t value) {
  if (!IsSet(value)) return false;
  if (value != 0 && value != 1) {
    return Error(Code::kInvalidArgument, "{} is {}, but must be 0 or 1", member, value);
  }
  return value == 1;
}

Result<onebitAlgorithm_t> ReadAlgorithm(int32_t algorithm) {
  if (!IsSet(algorithm)) return onebitAlgorithmOneBitAdam;
  switch (algorithm) {
    case onebitAlgorithmOneBitAdam:
    case onebitAlgorithmOneBitLamb:
    case onebitAlgorithmZeroOneAdam:
      return static_cast<onebitAlgorithm_t>(algorithm);
  }
  return Error(Code::kInvalidArgument,
               "algorithm is {}, but must be onebitAlgorithmOneBitAdam ({}), "
               "onebitAlgorithmOneBitLamb ({}) or onebitAlgorithmZeroOneAdam ({})",
               algorithm, static_cast<int>(onebitAlgorithmOneBitAdam),
               static_cast<int>(onebitAlgorithmOneBitLamb),
               static_cast<int>(onebitAlgorithmZeroOneAdam));
}

Result<Variant> ReadVariant(int32_t variant) {
  if (!IsSet(variant)) return Variant::kPaper;
  switch (variant) {
    case onebitVariantPaper:
      return Variant::kPaper;
    case onebitVariantDeepSpeed:
      return Variant::kDeepSpeed;
  }
  return Error(Code::kInvalidArgument,
               "variant is {}, but must be onebitVariantPaper ({}) or onebitVariantDeepSpeed ({})",
               variant, static_cast<int>(onebitVariantPaper),
               static_cast<int>(onebitVariantDeepSpeed));
}

Status CheckOnlyTwoStageMembers(const onebitPolicyConfig_t& config) {
  constexpr std::string_view kReason = "only 0/1 Adam uses it";
  ONEBIT_TRY(CheckNotSet("varFreezeStep", config.varFreezeStep, kReason));
  ONEBIT_TRY(CheckNotSet("varUpdateScaler", config.varUpdateScaler, kReason));
  ONEBIT_TRY(CheckNotSet("localStepScaler", config.localStepScaler, kReason));
  ONEBIT_TRY(CheckNotSet("localStepClipper", config.localStepClipper, kReason));
  ONEBIT_TRY(CheckNotSet("localStepStart", config.localStepStart, kReason));
  ONEBIT_TRY(CheckNotSet("rateTied", config.rateTied, kReason));
  return CheckNotSet("denseStepFeedsMomentum", config.denseStepFeedsMomentum, kReason);
}

Status ReadBeta2(const onebitPolicyConfig_t& config, PolicyOptions* options) {
  if (!IsSet(config.beta2)) return OkStatus();
  if (!(config.beta2 >= 0) || static_cast<float>(config.beta2) >= 1.0f) {
    return Error(Code::kInvalidArgument, "beta2 is {}, but must be in [0, 1)", config.beta2);
  }
  options->beta2 = config.beta2;
  return OkStatus();
}

Status ReadFreezeOfPaper(const onebitPolicyConfig_t& config, PolicyOptions* options) {
  ONEBIT_TRY(ReadBeta2(config, options));
  ONEBIT_ASSIGN_OR_RETURN(options->lr_warmup_steps,
                          ReadSteps("lrWarmupSteps", config.lrWarmupSteps, 0, 0));
  if (IsSet(config.freezeStep)) options->freeze_step = config.freezeStep;
  if (FollowsVariance(options->freeze_step)) {
    if (VarianceRule::Window(options->beta2) > VarianceRule::kMaxWindow) {
      return Error(Code::kInvalidArgument,
                   "beta2 is {}, but the automatic freeze needs at most 1 - 1e-6: set freezeStep",
                   options->beta2);
    }
  } else if (options->freeze_step < 1) {
    return Error(Code::kInvalidArgument,
                 "freezeStep is {}, but must be at least 1 (without dense steps there is no "
                 "variance), ONEBIT_FREEZE_AUTOMATIC, ONEBIT_FREEZE_SETTLED or ONEBIT_FREEZE_NEVER",
                 options->freeze_step);
  }
  return OkStatus();
}

Status ReadFreezeOfDeepSpeed(const onebitPolicyConfig_t& config, PolicyOptions* options) {
  constexpr std::string_view kReason =
      "only the automatic freeze uses it, which DeepSpeed does not have";
  ONEBIT_TRY(CheckNotSet("beta2", config.beta2, kReason));
  ONEBIT_TRY(CheckNotSet("lrWarmupSteps", config.lrWarmupSteps, kReason));
  if (!IsSet(config.freezeStep)) {
    return Error(Code::kInvalidArgument,
                 "freezeStep must be set for onebitVariantDeepSpeed: with DeepSpeed's default of "
                 "100000 most runs end before anything is compressed");
  }
  if (FollowsVariance(config.freezeStep)) {
    return Error(Code::kInvalidArgument,
                 "freezeStep is {}, which DeepSpeed does not have: set a step",
                 config.freezeStep == ONEBIT_FREEZE_SETTLED ? "ONEBIT_FREEZE_SETTLED"
                                                            : "ONEBIT_FREEZE_AUTOMATIC");
  }
  if (config.freezeStep < 2) {
    return Error(Code::kInvalidArgument,
                 "freezeStep is {}, but must be at least 2 (DeepSpeed swallows step 1, and without "
                 "dense steps there is no variance) or ONEBIT_FREEZE_NEVER",
                 config.freezeStep);
  }
  options->freeze_step = config.freezeStep;
  return OkStatus();
}

Status ReadLocalStepsOfPaper(const onebitPolicyConfig_t& config, ZeroOnePolicy* policy) {
  ONEBIT_ASSIGN_OR_RETURN(
      policy->local_step_start,
      ReadSteps("localStepStart", config.localStepStart, 0, policy->var_freeze_step));
  if (policy->local_step_start < policy->var_freeze_step) {
    return Error(Code::kInvalidArgument,
                 "localStepStart is {}, but must be at least varFreezeStep, which is {}: a refresh "
                 "within an interval would change what its steps divide by",
                 policy->local_step_start, policy->var_freeze_step);
  }
  ONEBIT_ASSIGN_OR_RETURN(policy->is_rate_tied, ReadSwitch("rateTied", config.rateTied));
  if (policy->is_rate_tied) {
    ONEBIT_TRY(CheckNotSet("localStepScaler", config.localStepScaler,
                           "with rateTied the interval doubles by the learning rate"));
  }
  ONEBIT_ASSIGN_OR_RETURN(policy->dense_step_feeds_momentum,
                          ReadSwitch("denseStepFeedsMomentum", config.denseStepFeedsMomentum));
  return OkStatus();
}

Status CheckNoLocalStepsOfPaper(const onebitPolicyConfig_t& config) {
  constexpr std::string_view kReason = "only onebitVariantPaper uses it";
  ONEBIT_TRY(CheckNotSet("localStepStart", config.localStepStart, kReason));
  ONEBIT_TRY(CheckNotSet("rateTied", config.rateTied, kReason));
  return CheckNotSet("denseStepFeedsMomentum", config.denseStepFeedsMomentum,
                     "in onebitVariantDeepSpeed dense steps always do");
}

Status ReadZeroOne(const onebitPolicyConfig_t& config, PolicyOptions* options) {
  ONEBIT_TRY(CheckNotSet("freezeStep", config.freezeStep, "0/1 Adam freezes by varFreezeStep"));
  ONEBIT_TRY(CheckNotSet("beta2", config.beta2, "0/1 Adam has no automatic freeze"));
  ONEBIT_ASSIGN_OR_RETURN(options->lr_warmup_steps,
                          ReadSteps("lrWarmupSteps", config.lrWarmupSteps, 0, 0));

  ZeroOnePolicy& policy = options->zero_one;
  policy.variant = options->variant;
  if (!IsSet(config.varFreezeStep) && options->lr_warmup_steps == 0) {
    return Error(Code::kInvalidArgument,
                 "varFreezeStep must be set for 0/1 Adam, or lrWarmupSteps, which then takes its "
                 "place: until that step the variance is refreshed");
  }
  ONEBIT_ASSIGN_OR_RETURN(policy.var_freeze_step, ReadSteps("varFreezeStep", config.varFreezeStep,
                                                            1, options->lr_warmup_steps));
  ONEBIT_ASSIGN_OR_RETURN(
      policy.var_update_scaler,
      ReadSteps("varUpdateScaler", config.varUpdateScaler, 1, policy.var_update_scaler));
  ONEBIT_ASSIGN_OR_RETURN(
      policy.local_step_scaler,
      ReadSteps("localStepScaler", config.localStepScaler, 1, policy.local_step_scaler));
  ONEBIT_ASSIGN_OR_RETURN(
      policy.local_step_clipper,
      ReadSteps("localStepClipper", config.localStepClipper, 1, policy.local_step_clipper));
  switch (policy.variant) {
    case Variant::kPaper:
      return ReadLocalStepsOfPaper(config, &policy);
    case Variant::kDeepSpeed:
      return CheckNoLocalStepsOfPaper(config);
  }
  return OkStatus();
}

}  // namespace

Result<PolicyOptions> ReadPolicyOptions(const onebitPolicyConfig_t& config) {
  PolicyOptions options;
  ONEBIT_ASSIGN_OR_RETURN(options.algorithm, ReadAlgorithm(config.algorithm));
  ONEBIT_ASSIGN_OR_RETURN(options.variant, ReadVariant(config.variant));
  if (options.algorithm == onebitAlgorithmZeroOneAdam) {
    ONEBIT_TRY(ReadZeroOne(config, &options));
    return options;
  }
  ONEBIT_TRY(CheckOnlyTwoStageMembers(config));
  switch (options.variant) {
    case Variant::kPaper:
      ONEBIT_TRY(ReadFreezeOfPaper(config, &options));
      break;
    case Variant::kDeepSpeed:
      ONEBIT_TRY(ReadFreezeOfDeepSpeed(config, &options));
      break;
  }
  return options;
}

bool FollowsVariance(int64_t freeze_step) {
  return freeze_step == ONEBIT_FREEZE_AUTOMATIC || freeze_step == ONEBIT_FREEZE_SETTLED;
}

FreezeRule FreezeRuleOf(const PolicyOptions& options) {
  switch (options.freeze_step) {
    case ONEBIT_FREEZE_AUTOMATIC:
      return FreezeRule::Automatic(options.beta2, options.lr_warmup_steps);
    case ONEBIT_FREEZE_SETTLED:
      return FreezeRule::Settled(options.beta2, options.lr_warmup_steps);
  }
  return FreezeRule::After(static_cast<uint64_t>(options.freeze_step));
}

}  // namespace onebit
