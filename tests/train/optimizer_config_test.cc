// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Maps the command line to the library's configuration.
#include "perf/train_text/optimizer_config.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/policy_of.h"

namespace onebit::train {
namespace {

using Arguments = std::vector<const char*>;

TrainOptions Parse(Arguments arguments) {
  arguments.insert(arguments.begin(), "train_text");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data(), std::nullopt).value();
}

onebitOptimizerConfig_t ConfigFor(const Arguments& arguments) { return ConfigOf(Parse(arguments)); }

// The library rejects members that the policy does not use.
bool IsPolicyAccepted(const onebitOptimizerConfig_t& config) {
  const onebitPolicyConfig_t policy = PolicyOf(config);
  onebitPolicy_t made = nullptr;
  const bool is_accepted = onebitPolicyCreate(&made, &policy) == onebitSuccess;
  onebitPolicyDestroy(made);
  return is_accepted;
}

TEST(OptimizerConfigTest, DenseOptimizersNeverFreeze) {
  for (const char* optimizer : {"adam", "lamb"}) {
    EXPECT_EQ(ConfigFor({"--optimizer", optimizer}).freezeStep, ONEBIT_FREEZE_NEVER) << optimizer;
  }
}

TEST(OptimizerConfigTest, EveryOptimizerHasItsAlgorithm) {
  const std::vector<std::pair<const char*, onebitAlgorithm_t>> algorithms = {
      {"adam", onebitAlgorithmOneBitAdam},
      {"onebit-adam", onebitAlgorithmOneBitAdam},
      {"sharded-onebit-adam", onebitAlgorithmOneBitAdam},
      {"lamb", onebitAlgorithmOneBitLamb},
      {"onebit-lamb", onebitAlgorithmOneBitLamb},
      {"zero-one-adam", onebitAlgorithmZeroOneAdam}};
  for (const auto& [name, algorithm] : algorithms) {
    const onebitOptimizerConfig_t config = ConfigFor({"--optimizer", name});
    EXPECT_EQ(config.algorithm, algorithm) << name;
    EXPECT_TRUE(IsPolicyAccepted(config)) << name;
  }
}

TEST(OptimizerConfigTest, DeepSpeedsVariantsLeaveWhatTheyHaveNoUseFor) {
  for (const char* optimizer : {"onebit-adam", "onebit-lamb", "zero-one-adam"}) {
    const onebitOptimizerConfig_t config =
        ConfigFor({"--optimizer", optimizer, "--variant", "deepspeed"});
    EXPECT_EQ(config.variant, onebitVariantDeepSpeed);
    EXPECT_TRUE(IsPolicyAccepted(config)) << optimizer << onebitGetLastError(nullptr);
  }
}

TEST(OptimizerConfigTest, TwoStagesFreezeAfterAFifthOfTheStepsButNotBeforeTheFirstUpdate) {
  EXPECT_EQ(ConfigFor({"--steps", "1500"}).freezeStep, 300);
  EXPECT_EQ(ConfigFor({"--steps", "3"}).freezeStep, 1);
  EXPECT_EQ(ConfigFor({"--steps", "3", "--variant", "deepspeed"}).freezeStep, 2);
  EXPECT_EQ(ConfigFor({"--freeze", "9"}).freezeStep, 9);
  EXPECT_EQ(ConfigFor({"--freeze", "auto"}).freezeStep, ONEBIT_FREEZE_AUTOMATIC);
  const onebitOptimizerConfig_t settled = ConfigFor({"--freeze", "settled", "--bias-correction"});
  EXPECT_EQ(settled.freezeStep, ONEBIT_FREEZE_SETTLED);
  EXPECT_EQ(settled.biasCorrection, 1);
  EXPECT_EQ(ConfigFor({"--warmup", "7"}).lrWarmupSteps, 7);
}

TEST(OptimizerConfigTest, ZeroOneAdamRefreshesForAFifthAndTiesIntervalsToTheRate) {
  const onebitOptimizerConfig_t config = ConfigFor({"--optimizer", "zero-one-adam"});
  EXPECT_EQ(config.varFreezeStep, 100);
  EXPECT_EQ(config.rateTied, 1);
  EXPECT_EQ(config.freezeStep, ONEBIT_UNDEF_STEP);
  EXPECT_EQ(config.localStepScaler, ONEBIT_UNDEF_STEP);
}

TEST(OptimizerConfigTest, AScalerOrAZeroUntiesIntervals) {
  const onebitOptimizerConfig_t scaled =
      ConfigFor({"--optimizer", "zero-one-adam", "--local-step-scaler", "50"});
  EXPECT_EQ(scaled.localStepScaler, 50);
  EXPECT_EQ(scaled.rateTied, ONEBIT_UNDEF_INT);
  const onebitOptimizerConfig_t untied =
      ConfigFor({"--optimizer", "zero-one-adam", "--rate-tied", "0"});
  EXPECT_EQ(untied.rateTied, 0);
  EXPECT_TRUE(IsPolicyAccepted(scaled) && IsPolicyAccepted(untied));
}

TEST(OptimizerConfigTest, OptionsOfZeroOneAdamAreItsMembers) {
  const onebitOptimizerConfig_t config =
      ConfigFor({"--optimizer", "zero-one-adam", "--var-freeze-step", "11", "--var-update-scaler",
                 "12", "--local-step-scaler", "13", "--local-step-clipper", "14",
                 "--local-step-start", "15", "--rate-tied", "0", "--dense-step-feeds-momentum"});
  EXPECT_EQ(config.varFreezeStep, 11);
  EXPECT_EQ(config.varUpdateScaler, 12);
  EXPECT_EQ(config.localStepScaler, 13);
  EXPECT_EQ(config.localStepClipper, 14);
  EXPECT_EQ(config.localStepStart, 15);
  EXPECT_EQ(config.rateTied, 0);
  EXPECT_EQ(config.denseStepFeedsMomentum, 1);
}

TEST(OptimizerConfigTest, OptionsOfLambAreItsMembers) {
  const onebitOptimizerConfig_t config = ConfigFor(
      {"--optimizer", "onebit-lamb", "--min-coeff", "0.1", "--max-coeff", "0.2", "--coeff-beta",
       "0.3", "--factor-min", "0.4", "--factor-max", "0.5", "--factor-threshold", "0.6"});
  EXPECT_EQ(config.minCoeff, 0.1);
  EXPECT_EQ(config.maxCoeff, 0.2);
  EXPECT_EQ(config.coeffBeta, 0.3);
  EXPECT_EQ(config.factorMin, 0.4);
  EXPECT_EQ(config.factorMax, 0.5);
  EXPECT_EQ(config.factorThreshold, 0.6);
}

TEST(OptimizerConfigTest, RatesSuitTheOptimizerUnlessGiven) {
  EXPECT_EQ(Parse({"--optimizer", "zero-one-adam"}).lr, 3e-3);
  EXPECT_EQ(Parse({"--optimizer", "lamb"}).lr, 2e-2);
  EXPECT_EQ(Parse({"--optimizer", "onebit-lamb"}).lr, 1e-2);
  EXPECT_EQ(Parse({"--lr", "0.5", "--optimizer", "lamb"}).lr, 0.5);
}

TEST(OptimizerConfigTest, TheVarianceFloorIsThatOfTheTablesUnlessGiven) {
  EXPECT_EQ(ConfigFor({"--optimizer", "adam"}).varianceFloor, ONEBIT_UNDEF_REAL);
  EXPECT_EQ(ConfigFor({}).varianceFloor, 0.01);
  EXPECT_EQ(ConfigFor({"--optimizer", "zero-one-adam"}).varianceFloor, 0.01);
  EXPECT_EQ(ConfigFor({"--variant", "deepspeed"}).varianceFloor, 0);
  EXPECT_EQ(ConfigFor({"--variance-floor", "0"}).varianceFloor, 0);
  EXPECT_EQ(ConfigFor({"--variant", "deepspeed", "--variance-floor", "0.5"}).varianceFloor, 0.5);
}

TEST(OptimizerConfigTest, ReportsNameOptionsWithoutDashes) {
  EXPECT_EQ(ReportName("--var-freeze-step"), "var_freeze_step");
}

}  // namespace
}  // namespace onebit::train
