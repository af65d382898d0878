// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Step policies through the C API.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/schedule.h"
#include "tests/support/allocation_counter.h"

namespace onebit::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class PolicyTest : public ::testing::Test {
 protected:
  ~PolicyTest() override { onebitPolicyDestroy(policy_); }

  void Create(const onebitPolicyConfig_t& config) {
    ASSERT_EQ(onebitPolicyDestroy(policy_), onebitSuccess);
    policy_ = nullptr;
    ASSERT_EQ(onebitPolicyCreate(&policy_, &config), onebitSuccess) << onebitGetLastError(nullptr);
  }

  onebitStepPlan_t Next(double learning_rate = 1) {
    onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
    EXPECT_EQ(onebitPolicyNext(policy_, learning_rate, &plan), onebitSuccess);
    return plan;
  }

  std::vector<onebitStepPlan_t> Steps(int count) {
    std::vector<onebitStepPlan_t> plans;
    for (int i = 0; i < count; ++i) {
      plans.push_back(Next());
      EXPECT_EQ(onebitPolicyCommit(policy_, 1, kNan), onebitSuccess);
    }
    return plans;
  }

  static std::string KindsOf(const std::vector<onebitStepPlan_t>& plans) {
    std::string kinds;
    for (const onebitStepPlan_t& plan : plans) kinds.push_back(plan.kind);
    return kinds;
  }

  onebitPolicy_t policy_ = nullptr;
};

onebitPolicyConfig_t ZeroOne(onebitVariant_t variant, int64_t freeze, int64_t kappa, int64_t scaler,
                             int64_t clipper) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.variant = variant;
  config.varFreezeStep = freeze;
  config.varUpdateScaler = kappa;
  config.localStepScaler = scaler;
  config.localStepClipper = clipper;
  return config;
}

// A skipped step, or a sync outside of a step, ends an interval without being a step.
TEST_F(PolicyTest, IntervalsMayEndBesidesASync) {
  const onebitPolicyConfig_t config = ZeroOne(onebitVariantPaper, 2, 1, 1, 4);
  Create(config);
  EXPECT_EQ(KindsOf(Steps(16)), "BB1...1...1...1.");
  Create(config);
  EXPECT_EQ(KindsOf(Steps(9)), "BB1...1..");
  ASSERT_EQ(onebitPolicyEndInterval(policy_), onebitSuccess);
  EXPECT_EQ(KindsOf(Steps(5)), "...1.");
  EXPECT_EQ(onebitPolicyEndInterval(nullptr), onebitInvalidArgument);
  Create(ONEBIT_POLICY_CONFIG_INIT);
  EXPECT_EQ(onebitPolicyEndInterval(policy_), onebitSuccess);
}

TEST_F(PolicyTest, PaperVariantOfZeroOneAdamCountsFromZero) {
  Create(ZeroOne(onebitVariantPaper, 2, 1, 2, 2));
  const std::vector<onebitStepPlan_t> plans = Steps(6);
  EXPECT_EQ(KindsOf(plans), "BB11.1");
  EXPECT_EQ(plans.front().step, 0u);
  EXPECT_EQ(plans.back().step, 5u);
  EXPECT_TRUE(plans[0].dense == 1 && plans[0].compressed == 1);
  EXPECT_TRUE(plans[2].dense == 0 && plans[2].compressed == 1);
  EXPECT_TRUE(plans[4].dense == 0 && plans[4].compressed == 0);
  EXPECT_EQ(plans[0].flags,
            0u + onebitStepRefreshesVariance + onebitStepSyncs + onebitStepEndsInterval);
  EXPECT_EQ(plans[2].flags, 0u + onebitStepSyncs + onebitStepEndsInterval);
  EXPECT_EQ(plans[4].flags, 0u);
}

TEST_F(PolicyTest, DeepSpeedVariantOfZeroOneAdamCountsFromOne) {
  Create(ZeroOne(onebitVariantDeepSpeed, 2, 1, 2, 2));
  const std::vector<onebitStepPlan_t> plans = Steps(7);
  EXPECT_EQ(KindsOf(plans), "iF1uuu.");
  EXPECT_EQ(plans.front().step, 1u);
  EXPECT_EQ(plans[0].flags, 0u + onebitStepEndsInterval);
  EXPECT_EQ(plans[1].flags,
            0u + onebitStepRefreshesVariance + onebitStepFeedsMomentum + onebitStepEndsInterval);
  EXPECT_EQ(plans[2].flags, 0u + onebitStepCompressesGradient + onebitStepEndsInterval);
  EXPECT_EQ(plans[3].flags,
            0u + onebitStepSyncs + onebitStepEndsInterval + onebitStepResetsResiduals);
  EXPECT_EQ(plans[4].flags, 0u + onebitStepSyncs + onebitStepEndsInterval);
}

TEST_F(PolicyTest, TwoStagesCountFromOne) {
  for (const auto algorithm : {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb}) {
    onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
    config.algorithm = algorithm;
    config.freezeStep = 3;
    Create(config);
    const std::vector<onebitStepPlan_t> plans = Steps(5);
    EXPECT_EQ(KindsOf(plans), "FFF11");
    EXPECT_EQ(plans.front().step, 1u);
    EXPECT_EQ(plans[0].flags,
              0u + onebitStepRefreshesVariance + onebitStepFeedsMomentum + onebitStepEndsInterval);
    EXPECT_EQ(plans[3].flags, 0u + onebitStepEndsInterval);
    config.variant = onebitVariantDeepSpeed;
    Create(config);
    EXPECT_EQ(KindsOf(Steps(5)), "iFF11");
  }
}

TEST_F(PolicyTest, AutomaticFreezeLooksAtTheVarianceUntilItFires) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.beta2 = 0.5;
  config.lrWarmupSteps = 8;
  Create(config);
  for (int step = 1; step <= 9; ++step) {
    EXPECT_EQ(Next().kind, 'F') << step;
    for (const double bad : {kNan, -1.0, HUGE_VAL}) {
      EXPECT_EQ(onebitPolicyCommit(policy_, 1, bad), onebitInvalidArgument);
      EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("variance_sum"), std::string::npos);
    }
    EXPECT_EQ(Next().step, static_cast<uint64_t>(step)) << "a refused commit changes nothing";
    EXPECT_EQ(onebitPolicyCommit(policy_, 1, 7.0), onebitSuccess);
  }
  EXPECT_EQ(KindsOf(Steps(3)), "111");
}

TEST_F(PolicyTest, NextShowsWhatALearningRateWouldMake) {
  Create(ZeroOne(onebitVariantPaper, 1, 1, 1, 1));
  EXPECT_EQ(Next(0).kind, 'F');
  EXPECT_EQ(Next(1).kind, 'B');
  EXPECT_EQ(Next(0).kind, 'F') << "it changes nothing";
}

TEST_F(PolicyTest, ArgumentsAreChecked) {
  EXPECT_EQ(onebitPolicyCreate(nullptr, nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitPolicyDestroy(nullptr), onebitSuccess);
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.magic = 0;
  EXPECT_EQ(onebitPolicyCreate(&policy_, &config), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("ONEBIT_POLICY_CONFIG_INIT"),
            std::string::npos);
  config = ONEBIT_POLICY_CONFIG_INIT;
  config.rateTied = 1;
  EXPECT_EQ(onebitPolicyCreate(&policy_, &config), onebitInvalidArgument);
  EXPECT_EQ(policy_, nullptr) << "written only on success";

  ASSERT_EQ(onebitPolicyCreate(&policy_, nullptr), onebitSuccess) << "all defaults";
  onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
  EXPECT_EQ(onebitPolicyNext(nullptr, 1, &plan), onebitInvalidArgument);
  EXPECT_EQ(onebitPolicyNext(policy_, 1, nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitPolicyCommit(nullptr, 1, 0), onebitInvalidArgument);
  for (const double bad : {-1.0, kNan, HUGE_VAL, 1e300}) {
    EXPECT_EQ(onebitPolicyNext(policy_, bad, &plan), onebitInvalidArgument);
    EXPECT_EQ(onebitPolicyCommit(policy_, bad, 0), onebitInvalidArgument);
  }
  for (const double bad : {-1.0, kNan, HUGE_VAL}) {
    EXPECT_EQ(onebitPolicyCommit(policy_, 1, bad), onebitInvalidArgument) << "variance " << bad;
  }
  EXPECT_EQ(plan.kind, 0);
  plan.size -= 1;
  EXPECT_EQ(onebitPolicyNext(policy_, 1, &plan), onebitInvalidArgument);
  EXPECT_NE(std::string(onebitGetLastError(nullptr)).find("plan->size"), std::string::npos);
}

TEST_F(PolicyTest, StepsAllocateNothing) {
  onebitPolicyConfig_t automatic = ONEBIT_POLICY_CONFIG_INIT;
  for (const onebitPolicyConfig_t& config : {automatic, ZeroOne(onebitVariantPaper, 9, 2, 5, 8),
                                             ZeroOne(onebitVariantDeepSpeed, 9, 2, 5, 8)}) {
    Create(config);
    const uint64_t before = AllocationsOfThisThread();
    for (int step = 0; step < 50; ++step) {
      onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
      onebitPolicyNext(policy_, 1, &plan);
      onebitPolicyCommit(policy_, 1, 1);
    }
    EXPECT_EQ(AllocationsOfThisThread(), before);
  }
}

}  // namespace
}  // namespace onebit::testing
