// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Configurations of step policies: defaults, ranges, and members that would have no effect.
#include "schedule/policy_options.h"

#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace onebit {
namespace {

using Config = onebitPolicyConfig_t;

Config OneBit(onebitVariant_t variant = onebitVariantPaper) {
  Config config = ONEBIT_POLICY_CONFIG_INIT;
  config.variant = variant;
  if (variant == onebitVariantDeepSpeed) config.freezeStep = 100;
  return config;
}

Config ZeroOne(onebitVariant_t variant = onebitVariantPaper) {
  Config config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.variant = variant;
  config.varFreezeStep = 100;
  return config;
}

PolicyOptions Read(const Config& config) {
  const Result<PolicyOptions> options = ReadPolicyOptions(config);
  EXPECT_TRUE(options.ok()) << options.status().text();
  return options.ok() ? options.value() : PolicyOptions{};
}

// `base` is valid. Changed by `change` it must give an error that begins with `member` and contains
// `reason`.
void ExpectError(Config base, const std::string& member, const std::string& reason,
                 const std::function<void(Config&)>& change) {
  Read(base);
  change(base);
  const Result<PolicyOptions> options = ReadPolicyOptions(base);
  ASSERT_FALSE(options.ok()) << member;
  const std::string& text = options.status().text();
  EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(text.starts_with(member + " ")) << text;
  EXPECT_NE(text.find(reason), std::string::npos) << text;
}

TEST(PolicyOptionsTest, DefaultIsTheAutomaticFreezeOfThePaper) {
  const PolicyOptions options = Read(ONEBIT_POLICY_CONFIG_INIT);
  EXPECT_EQ(options.algorithm, onebitAlgorithmOneBitAdam);
  EXPECT_EQ(options.variant, Variant::kPaper);
  EXPECT_EQ(options.freeze_step, ONEBIT_FREEZE_AUTOMATIC);
  EXPECT_EQ(options.beta2, 0.999);
  EXPECT_EQ(options.lr_warmup_steps, 0u);
  EXPECT_TRUE(FreezeRuleOf(options).needs_variance_sum());
}

TEST(PolicyOptionsTest, DefaultsOfZeroOneAdamAreThePublishedOnes) {
  EXPECT_EQ(Read(ZeroOne()).zero_one, (ZeroOnePolicy{.variant = Variant::kPaper,
                                                     .var_freeze_step = 100,
                                                     .var_update_scaler = 16,
                                                     .local_step_scaler = 32'678,
                                                     .local_step_clipper = 16,
                                                     .local_step_start = 100}));
  EXPECT_EQ(Read(ZeroOne(onebitVariantDeepSpeed)).zero_one.variant, Variant::kDeepSpeed);
}

TEST(PolicyOptionsTest, AllMembersOfZeroOneAdamAreTaken) {
  Config config = ZeroOne();
  config.varUpdateScaler = 3;
  config.localStepClipper = 5;
  config.localStepStart = 111;
  config.rateTied = 1;
  config.denseStepFeedsMomentum = 1;
  EXPECT_EQ(Read(config).zero_one, (ZeroOnePolicy{.variant = Variant::kPaper,
                                                  .var_freeze_step = 100,
                                                  .var_update_scaler = 3,
                                                  .local_step_scaler = 32'678,
                                                  .local_step_clipper = 5,
                                                  .local_step_start = 111,
                                                  .is_rate_tied = true,
                                                  .dense_step_feeds_momentum = true}));
  config.rateTied = 0;
  config.localStepScaler = 4;
  EXPECT_EQ(Read(config).zero_one.local_step_scaler, 4u);
}

TEST(PolicyOptionsTest, VarianceFreezesAtTheEndOfTheWarmUpUnlessToldOtherwise) {
  Config config = ZeroOne();
  config.lrWarmupSteps = 40;
  EXPECT_EQ(Read(config).zero_one.var_freeze_step, 100u);
  config.varFreezeStep = ONEBIT_UNDEF_STEP;
  EXPECT_EQ(Read(config).zero_one.var_freeze_step, 40u);
  EXPECT_EQ(Read(config).zero_one.local_step_start, 40u);
  ExpectError(config, "varFreezeStep", "lrWarmupSteps",
              [](Config& config) { config.lrWarmupSteps = 0; });
}

TEST(PolicyOptionsTest, FixedFreezesAreTaken) {
  Config config = OneBit();
  for (const int64_t step :
       {int64_t{1}, int64_t{100}, ONEBIT_FREEZE_NEVER, int64_t{ONEBIT_FREEZE_SETTLED}}) {
    config.freezeStep = step;
    EXPECT_EQ(Read(config).freeze_step, step);
    EXPECT_EQ(FreezeRuleOf(Read(config)).needs_variance_sum(), step == ONEBIT_FREEZE_SETTLED);
  }
  config.algorithm = onebitAlgorithmOneBitLamb;
  config.variant = onebitVariantDeepSpeed;
  config.freezeStep = 2;
  EXPECT_EQ(Read(config).algorithm, onebitAlgorithmOneBitLamb);
  EXPECT_EQ(Read(config).variant, Variant::kDeepSpeed);
  EXPECT_EQ(Read(config).freeze_step, 2);
}

TEST(PolicyOptionsTest, RangesAreChecked) {
  const auto set = [](auto Config::*member, auto value) {
    return [=](Config& config) { config.*member = value; };
  };
  ExpectError(OneBit(), "algorithm", "7", set(&Config::algorithm, 7));
  ExpectError(OneBit(), "variant", "2", set(&Config::variant, 2));
  for (const double bad : {1.0, -0.5, std::numeric_limits<double>::quiet_NaN(), 1 - 1e-12}) {
    ExpectError(OneBit(), "beta2", "[0, 1)", set(&Config::beta2, bad));
  }
  ExpectError(OneBit(), "beta2", "set freezeStep", set(&Config::beta2, 1 - 5e-7));
  ExpectError(OneBit(), "lrWarmupSteps", "at least 0", set(&Config::lrWarmupSteps, -1));
  ExpectError(OneBit(), "freezeStep", "at least 1", set(&Config::freezeStep, 0));
  ExpectError(OneBit(), "freezeStep", "at least 1", set(&Config::freezeStep, -3));
  ExpectError(OneBit(onebitVariantDeepSpeed), "freezeStep", "at least 2",
              set(&Config::freezeStep, 1));
  ExpectError(ZeroOne(), "lrWarmupSteps", "at least 0", set(&Config::lrWarmupSteps, -1));
  ExpectError(ZeroOne(), "varFreezeStep", "at least 1", set(&Config::varFreezeStep, 0));
  ExpectError(ZeroOne(), "varUpdateScaler", "at least 1", set(&Config::varUpdateScaler, 0));
  ExpectError(ZeroOne(), "localStepScaler", "at least 1", set(&Config::localStepScaler, 0));
  ExpectError(ZeroOne(), "localStepClipper", "at least 1", set(&Config::localStepClipper, 0));
  ExpectError(ZeroOne(), "localStepStart", "varFreezeStep", set(&Config::localStepStart, 99));
  ExpectError(ZeroOne(), "rateTied", "0 or 1", set(&Config::rateTied, 2));
  ExpectError(ZeroOne(), "denseStepFeedsMomentum", "0 or 1",
              set(&Config::denseStepFeedsMomentum, -1));
}

TEST(PolicyOptionsTest, DeepSpeedNeedsAFixedFreeze) {
  ExpectError(OneBit(onebitVariantDeepSpeed), "freezeStep", "100000",
              [](Config& config) { config.freezeStep = ONEBIT_UNDEF_STEP; });
  ExpectError(OneBit(onebitVariantDeepSpeed), "freezeStep", "ONEBIT_FREEZE_AUTOMATIC",
              [](Config& config) { config.freezeStep = ONEBIT_FREEZE_AUTOMATIC; });
  ExpectError(OneBit(onebitVariantDeepSpeed), "freezeStep", "ONEBIT_FREEZE_SETTLED",
              [](Config& config) { config.freezeStep = ONEBIT_FREEZE_SETTLED; });
}

TEST(PolicyOptionsTest, MembersWithoutEffectAreRefused) {
  const auto set = [](auto Config::*member, auto value) {
    return [=](Config& config) { config.*member = value; };
  };
  for (const auto algorithm : {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb}) {
    Config config = OneBit();
    config.algorithm = algorithm;
    const std::string reason = "only 0/1 Adam";
    ExpectError(config, "varFreezeStep", reason, set(&Config::varFreezeStep, 10));
    ExpectError(config, "varUpdateScaler", reason, set(&Config::varUpdateScaler, 16));
    ExpectError(config, "localStepScaler", reason, set(&Config::localStepScaler, 10));
    ExpectError(config, "localStepClipper", reason, set(&Config::localStepClipper, 16));
    ExpectError(config, "localStepStart", reason, set(&Config::localStepStart, 10));
    ExpectError(config, "rateTied", reason, set(&Config::rateTied, 0));
    ExpectError(config, "denseStepFeedsMomentum", reason, set(&Config::denseStepFeedsMomentum, 0));
  }
  const Config deep_speed = OneBit(onebitVariantDeepSpeed);
  ExpectError(deep_speed, "beta2", "automatic", set(&Config::beta2, 0.999));
  ExpectError(deep_speed, "lrWarmupSteps", "automatic", set(&Config::lrWarmupSteps, 0));

  ExpectError(ZeroOne(), "freezeStep", "varFreezeStep", set(&Config::freezeStep, 100));
  ExpectError(ZeroOne(), "beta2", "automatic", set(&Config::beta2, 0.999));
  Config tied = ZeroOne();
  tied.rateTied = 1;
  ExpectError(tied, "localStepScaler", "rateTied", set(&Config::localStepScaler, 10));

  const Config zero_one = ZeroOne(onebitVariantDeepSpeed);
  ExpectError(zero_one, "localStepStart", "onebitVariantPaper", set(&Config::localStepStart, 200));
  ExpectError(zero_one, "rateTied", "onebitVariantPaper", set(&Config::rateTied, 1));
  ExpectError(zero_one, "denseStepFeedsMomentum", "always",
              set(&Config::denseStepFeedsMomentum, 1));
}

}  // namespace
}  // namespace onebit
