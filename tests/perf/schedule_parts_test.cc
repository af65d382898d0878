// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computations of onebit_schedule: volumes and learning rates.
#include <map>
#include <numbers>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/common/rate_schedule.h"
#include "perf/common/tool_error.h"
#include "perf/onebit_schedule/policy_run.h"
#include "perf/onebit_schedule/volume.h"

namespace onebit::schedule {
namespace {

using perf::Decay;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

StepCounts Counts(const std::string& kinds) {
  const std::map<char, onebitStepPlan_t> plans = {
      {'i', {.dense = 0, .compressed = 0, .kind = 'i'}},
      {'F', {.dense = 1, .compressed = 0, .kind = 'F'}},
      {'B', {.dense = 1, .compressed = 1, .kind = 'B'}},
      {'1', {.dense = 0, .compressed = 1, .kind = '1'}},
      {'u', {.dense = 0, .compressed = 1, .kind = 'u'}},
      {'.', {.dense = 0, .compressed = 0, .kind = '.'}}};
  StepCounts counts;
  for (const char kind : kinds) counts.Add(plans.at(kind));
  return counts;
}

TEST(VolumeTest, BothAveragesOfAStepCost) {
  const StepCounts counts = Counts("iFBB111uu...");
  EXPECT_EQ(counts.steps(), 12u);
  EXPECT_EQ(counts.of('B'), 2u);
  EXPECT_EQ(counts.of('.'), 3u);
  EXPECT_EQ(counts.rounds(), 8u) << "B is one round; i and . are none";
  EXPECT_EQ(counts.dense(), 3u);
  EXPECT_EQ(counts.compressed(), 7u);
  EXPECT_EQ(TotalBits(counts, 16), 55u);
  EXPECT_EQ(TotalBits(counts, 32), 103u);
  EXPECT_DOUBLE_EQ(BitsPerStep(counts, 16), 55.0 / 12);
  EXPECT_DOUBLE_EQ(RoundsSaved(counts), 4.0 / 12);
}

TEST(VolumeTest, DenseStepsReduceNothing) {
  EXPECT_DOUBLE_EQ(Reduction(BitsPerStep(Counts("FFFF"), 32), 32), 1);
  EXPECT_DOUBLE_EQ(Reduction(BitsPerStep(Counts("1111"), 32), 32), 32);
  EXPECT_DOUBLE_EQ(Reduction(BitsPerStep(Counts("F1"), 16), 16), 32.0 / 17);
}

TEST(RateScheduleTest, WarmsUpThenDecays) {
  RateSchedule rates = {.peak = 8, .warmup_steps = 4, .total_steps = 12};
  EXPECT_DOUBLE_EQ(rates.At(0), 2);
  EXPECT_DOUBLE_EQ(rates.At(3), 8);
  EXPECT_DOUBLE_EQ(rates.At(1000), 8);
  rates.decay = Decay::kLinear;
  EXPECT_DOUBLE_EQ(rates.At(4), 8);
  EXPECT_DOUBLE_EQ(rates.At(8), 4);
  EXPECT_EQ(rates.At(12), 0);
  EXPECT_EQ(rates.At(1000), 0);
  rates.decay = Decay::kCosine;
  EXPECT_DOUBLE_EQ(rates.At(4), 8);
  EXPECT_NEAR(rates.At(6), 4 + 2 * std::numbers::sqrt2, 1e-12);  // where a line would be at 6
  EXPECT_NEAR(rates.At(8), 4, 1e-12);
  EXPECT_EQ(rates.At(12), 0);
  rates.decay = Decay::kExponential;
  rates.factor = 0.5;
  rates.decay_steps = 3;
  EXPECT_DOUBLE_EQ(rates.At(6), 8);
  EXPECT_DOUBLE_EQ(rates.At(7), 4);
  EXPECT_DOUBLE_EQ(rates.At(10), 2);
}

TEST(RateScheduleTest, DecayMayBeOverBeforeTheWarmUpIs) {
  const RateSchedule rates = {
      .peak = 1, .warmup_steps = 4, .decay = Decay::kLinear, .total_steps = 2};
  EXPECT_DOUBLE_EQ(rates.At(3), 1);
  EXPECT_EQ(rates.At(4), 0);
}

TEST(PolicyRunTest, StepsBeforeTheFirstAreMadeButNotCounted) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.freezeStep = 4;
  const Steps steps = RunSteps(config, {}, 3, 6);
  EXPECT_EQ(steps.kinds, "FF11");
  EXPECT_EQ(steps.counts.steps(), 4u);
  EXPECT_EQ(RunSteps(config, {}, 1, 1).kinds, "F");
  EXPECT_THAT([&] { RunSteps(config, {}, 0, 5); },
              ThrowsMessage<perf::UsageError>(HasSubstr("counts its steps from 1")));
}

TEST(PolicyRunTest, RatesReachThePolicy) {
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.varFreezeStep = 2;
  config.rateTied = 1;
  const RateSchedule rates = {.decay = Decay::kExponential, .factor = 0.5, .decay_steps = 4};
  EXPECT_EQ(RunSteps(config, rates, 0, 15).kinds, "BB11.1.1...1....")
      << "intervals 1, 2, 4 and 8, four steps each";
}

}  // namespace
}  // namespace onebit::schedule
