// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The dense, compressed and local steps of a run, compared with the library's policies.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.h"
#include "onebit/schedule.h"
#include "perf/train_text/optimizer_config.h"
#include "perf/train_text/step_kinds.h"
#include "perf/train_text/trainer.h"
#include "tests/train/policy_of.h"
#include "tests/train/small_run.h"

namespace onebit::train {
namespace {

/** Returns the kinds of steps as the library plans them, from learning rates alone. */
std::string PlannedKinds(const TrainOptions& options, const TrainResult& result) {
  const onebitPolicyConfig_t config = PolicyOf(ConfigOf(options));
  onebitPolicy_t policy = nullptr;
  EXPECT_EQ(onebitPolicyCreate(&policy, &config), onebitSuccess) << onebitGetLastError(nullptr);
  std::string kinds;
  for (const StepRecord& step : result.steps) {
    onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
    EXPECT_EQ(onebitPolicyNext(policy, step.lr, &plan), onebitSuccess);
    EXPECT_EQ(onebitPolicyCommit(policy, step.lr, 0), onebitSuccess);
    kinds += plan.kind;
  }
  onebitPolicyDestroy(policy);
  return kinds;
}

TEST(TrainerScheduleTest, StepsAreThoseOfThePolicy) {
  TrainOptions options = SmallOptions(2);
  options.lr = 1e-3;
  options.steps = 40;
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kOneBitAdam,
                                   OptimizerKind::kOneBitLamb, OptimizerKind::kZeroOneAdam}) {
    for (const onebitVariant_t variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
      options.optimizer = kind;
      options.variant = Compresses(kind) ? variant : onebitVariantPaper;
      const TrainResult result = Train(options, SmallCorpus());
      ASSERT_EQ(result.steps.size(), 40U) << OptimizerName(kind);
      EXPECT_EQ(StepKinds(options, result.steps), PlannedKinds(options, result))
          << OptimizerName(kind);
    }
  }
}

TEST(TrainerScheduleTest, DeepSpeedsZeroOneAdamHasLettersOfItsOwn) {
  TrainOptions options = SmallOptions(2);
  LocalSteps(options);
  options.variant = onebitVariantDeepSpeed;
  const TrainResult result = Train(options, SmallCorpus());
  const std::string kinds = StepKinds(options, result.steps);
  EXPECT_EQ(kinds, PlannedKinds(options, result));
  EXPECT_EQ(kinds.front(), 'i');
  EXPECT_NE(kinds.find(".u"), std::string::npos) << kinds;
}

TEST(TrainerScheduleTest, ASkippedStepIsMadeAgain) {
  TrainOptions options;
  options.optimizer = OptimizerKind::kZeroOneAdam;
  options.variant = onebitVariantDeepSpeed;
  options.rule.varFreezeStep = 3;
  const auto step = [](onebitStage_t stage) { return StepRecord{.stage = stage}; };
  std::vector<StepRecord> steps = {step(onebitStageLocal),      step(onebitStageDense),
                                   step(onebitStageDense),      step(onebitStageCompressed),
                                   step(onebitStageCompressed), step(onebitStageCompressed)};
  EXPECT_EQ(StepKinds(options, steps), "iFF1uu");
  steps[3].is_skipped = true;
  EXPECT_EQ(StepKinds(options, steps), "iFF11u");
}

TEST(TrainerScheduleTest, ZeroOneAdamSendsNothingInLocalSteps) {
  TrainOptions options = SmallOptions(3);
  LocalSteps(options);
  const TrainResult result = Train(options, SmallCorpus());
  EXPECT_EQ(StepKinds(options, result.steps), "BBBBBBBBBB1...1...1...1...1...");
  const StepCounts counts = CountSteps(result.steps);
  EXPECT_EQ(counts.rounds, 15U);
  EXPECT_EQ(counts.dense, 10U);
  EXPECT_EQ(counts.compressed, 15U);
  EXPECT_EQ(counts.local, 15U);
  for (const StepRecord& step : result.steps) {
    EXPECT_EQ(step.bytes_sent == 0, step.stage == onebitStageLocal);
  }
}

TEST(TrainerScheduleTest, ARunThatEndsBetweenSyncsEndsWithOneMore) {
  TrainOptions options = SmallOptions(3);
  LocalSteps(options);
  const TrainResult result = Train(options, SmallCorpus());  // throws if replicas differ
  const StepRecord& last_sync = result.steps[26];
  ASSERT_EQ(last_sync.stage, onebitStageCompressed);
  EXPECT_EQ(result.final_sync_bytes, last_sync.bytes_sent);
  options.steps = 27;
  EXPECT_EQ(Train(options, SmallCorpus()).final_sync_bytes, 0U);
}

}  // namespace
}  // namespace onebit::train
