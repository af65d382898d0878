// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Freeze rules on known sequences of |v_t|_1.
#include "schedule/freeze_rule.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace onebit {
namespace {

// First t in 1..limit at which the rule fires, or 0. `sum` is |v_t|_1 by t.
uint64_t FirstFreeze(FreezeRule rule, const std::function<double(uint64_t)>& sum,
                     uint64_t limit = 10'000) {
  for (uint64_t t = 1; t <= limit; ++t) {
    if (rule.ShouldFreeze(sum(t))) return t;
  }
  return 0;
}

// v of a constant gradient.
std::function<double(uint64_t)> Stationary(double beta2, double level = 2.5) {
  return [=](uint64_t t) { return level * (1 - std::pow(beta2, static_cast<double>(t))); };
}

TEST(FreezeRuleTest, AutomaticFiresOnConstantGradient) {
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 0), Stationary(0.9)), 37u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.95, 0), Stationary(0.95)), 75u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.99, 0), Stationary(0.99)), 378u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.999, 0), Stationary(0.999)), 3783u);
}

TEST(FreezeRuleTest, AutomaticWaitsForLearningRateWarmup) {
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 36), Stationary(0.9)), 37u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 37), Stationary(0.9)), 38u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 500), Stationary(0.9)), 501u);
}

TEST(FreezeRuleTest, AutomaticIgnoresTransients) {
  // The gradient falls as fast as the start-up bias vanishes: raw v is constant, and only the
  // corrected ratio shows that it has not settled.
  const auto standing_still = [](uint64_t) { return 1.0; };
  const uint64_t t = FirstFreeze(FreezeRule::Automatic(0.99, 0), standing_still);
  // 1 - b^(t-D) >= 0.96 (1 - b^t), the same condition as for a constant gradient.
  EXPECT_EQ(t, 378u);
}

TEST(FreezeRuleTest, AutomaticNeedsTheRawRatioToo) {
  // Corrected v grows 1.5 % per step: never settled.
  const auto growing = [](uint64_t t) { return std::pow(1.015, static_cast<double>(t)); };
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 0), growing, 1000), 0u);
  const auto falling = [](uint64_t t) { return std::pow(0.985, static_cast<double>(t)); };
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.9, 0), falling, 1000), 0u);
}

TEST(FreezeRuleTest, AutomaticNeverFiresOnZeroVariance) {
  EXPECT_EQ(FirstFreeze(
                FreezeRule::Automatic(0.9, 0), [](uint64_t) { return 0.0; }, 1000),
            0u);
}

TEST(FreezeRuleTest, AutomaticWithoutMemoryOfVariance) {
  // beta2 = 0: v_t is the last squared gradient, D = 1.
  EXPECT_EQ(AutomaticFreeze::Window(0.0), 1.0);
  const auto settles_at_5 = [](uint64_t t) { return t < 5 ? std::exp2(t) : 16.0; };
  EXPECT_EQ(FirstFreeze(FreezeRule::Automatic(0.0, 0), settles_at_5, 100), 5u);
}

// Long before 1 / (1 - beta2) steps, where the gradient is constant from the beginning.
TEST(FreezeRuleTest, SettledFiresEarlyOnConstantGradient) {
  for (const double beta2 : {0.9, 0.99, 0.999}) {
    EXPECT_EQ(FirstFreeze(FreezeRule::Settled(beta2, 0), Stationary(beta2)), 33u) << beta2;
    EXPECT_EQ(FirstFreeze(FreezeRule::Settled(beta2, 200), Stationary(beta2)), 201u) << beta2;
  }
}

// The first 5 squared gradients are 9 times as large. What is left of them in the mean of all,
// 40 / t, may change by 4 % from t / 2 to t: 1 + 40/t >= 0.96 (1 + 80/t) from t = 920 on.
TEST(FreezeRuleTest, SettledWaitsUntilATransientIsForgotten) {
  const double beta2 = 1 - 1e-6;
  double v = 0;
  const auto falls = [&](uint64_t t) { return v = beta2 * v + (1 - beta2) * (t <= 5 ? 9 : 1); };
  EXPECT_NEAR(static_cast<double>(FirstFreeze(FreezeRule::Settled(beta2, 0), falls)), 920, 3);
}

TEST(FreezeRuleTest, SettledDoesNotFireWhereVarianceMoves) {
  const double beta2 = 0.999;
  for (const double power : {-0.5, -0.1, 0.1, 1.0}) {
    double v = 0;
    const auto moves = [&](uint64_t t) {
      return v = beta2 * v + (1 - beta2) * std::pow(static_cast<double>(t), power);
    };
    EXPECT_EQ(FirstFreeze(FreezeRule::Settled(beta2, 0), moves, 1000), 0u) << power;
  }
}

// The corrected variance is at t what it was at t / 2, but was elsewhere in between.
TEST(FreezeRuleTest, SettledLooksAtAllStepsInBetween) {
  const auto swings = [](uint64_t t) {
    const double phase = std::log2(static_cast<double>(t));
    return (1 - std::pow(0.999, static_cast<double>(t))) * (2 + std::sin(2 * M_PI * phase));
  };
  EXPECT_EQ(FirstFreeze(FreezeRule::Settled(0.999, 0), swings, 1000), 0u);
}

TEST(FreezeRuleTest, SettledNeverFiresOnZeroVariance) {
  EXPECT_EQ(FirstFreeze(
                FreezeRule::Settled(0.9, 0), [](uint64_t) { return 0.0; }, 1000),
            0u);
  EXPECT_EQ(FirstFreeze(FreezeRule::Settled(0.0, 0), Stationary(0.0)), 33u);
}

TEST(FreezeRuleTest, WindowIsRounded) {
  EXPECT_EQ(AutomaticFreeze::Window(0.999), 1000.0);
  EXPECT_EQ(AutomaticFreeze::Window(0.97), 33.0);
}

TEST(FreezeRuleTest, FixedFreezesAfterItsStep) {
  EXPECT_FALSE(FreezeRule::After(12).needs_variance_sum());
  EXPECT_EQ(FirstFreeze(FreezeRule::After(12), [](uint64_t) { return 0.0; }), 12u);
}

TEST(FreezeRuleTest, FixedStepBeyondTheEndNeverFreezes) {
  EXPECT_EQ(FirstFreeze(FreezeRule::After(UINT64_MAX), [](uint64_t) { return 0.0; }), 0u);
}

}  // namespace
}  // namespace onebit
