// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Short runs on a small text are reproducible and equal on all ranks.
#include "perf/train_text/trainer.h"

#include <algorithm>
#include <atomic>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "perf/common/tool_error.h"
#include "perf/train_text/optimizer_config.h"
#include "tests/train/small_run.h"

namespace onebit::train {
namespace {

std::string ErrorOf(const TrainOptions& options, const TrainHooks& hooks = {}) {
  try {
    Train(options, SmallCorpus(), hooks);
  } catch (const perf::ToolError& error) {
    return error.what();
  }
  return "none";
}

TEST(TrainerTest, ARunIsReproducibleToTheBit) {
  const Corpus corpus = SmallCorpus();
  const TrainResult first = Train(SmallOptions(2), corpus);
  const TrainResult second = Train(SmallOptions(2), corpus);
  EXPECT_EQ(Losses(first), Losses(second));
  EXPECT_EQ(first.parameter_hash, second.parameter_hash);
  EXPECT_EQ(first.heldout_loss, second.heldout_loss);
  EXPECT_EQ(first.bytes_sent_by_rank, second.bytes_sent_by_rank);
}

TEST(TrainerTest, AnotherSeedIsAnotherRun) {
  TrainOptions other = SmallOptions(2);
  other.seed = 1;
  const Corpus corpus = SmallCorpus();
  EXPECT_NE(Train(SmallOptions(2), corpus).parameter_hash, Train(other, corpus).parameter_hash);
}

TEST(TrainerTest, LearnsInBothStages) {
  TrainOptions options = SmallOptions(2);
  options.steps = 100;
  options.freeze = 20;
  const TrainResult result = Train(options, SmallCorpus());
  EXPECT_EQ(result.frozen_at, 20U);
  EXPECT_EQ(result.steps[19].stage, onebitStageDense);
  EXPECT_EQ(result.steps[20].stage, onebitStageCompressed);
  EXPECT_LT(result.steps[19].loss, result.steps[0].loss - 1);
  ASSERT_TRUE(result.heldout_loss.has_value());
  EXPECT_LT(*result.heldout_loss, result.steps[19].loss - 1);
}

TEST(TrainerTest, OverlappedAdamTakesTheVerySameSteps) {
  const Corpus corpus = SmallCorpus();
  for (const onebitDataType_t type : {onebitFloat32, onebitFloat16}) {
    TrainOptions options = SmallOptions(3);
    options.optimizer = OptimizerKind::kAdam;
    options.gradient_type = type;
    const TrainResult whole = Train(options, corpus);
    options.is_overlapped = true;
    const TrainResult layers = Train(options, corpus);
    EXPECT_EQ(Losses(layers), Losses(whole));
    EXPECT_EQ(layers.parameter_hash, whole.parameter_hash);
    EXPECT_EQ(layers.heldout_loss, whole.heldout_loss);
    EXPECT_GT(layers.seconds.exposed, 0);
    EXPECT_EQ(whole.seconds.exposed, 0);
  }
}

TEST(TrainerTest, ZeroOneAdamThatRefreshesInEveryStepIsAdam) {
  const Corpus corpus = SmallCorpus();
  TrainOptions options = SmallOptions(3);
  options.optimizer = OptimizerKind::kAdam;
  const TrainResult adam = Train(options, corpus);
  options.optimizer = OptimizerKind::kZeroOneAdam;
  options.rule.varFreezeStep = options.rule.varUpdateScaler = options.steps;
  options.rule.denseStepFeedsMomentum = 1;
  options.variance_floor = 0;
  const TrainResult zero_one = Train(options, corpus);
  ASSERT_EQ(zero_one.steps.size(), adam.steps.size());
  for (size_t i = 0; i < adam.steps.size(); ++i) {  // they round in another order
    EXPECT_NEAR(zero_one.steps[i].loss, adam.steps[i].loss, 1e-3) << "step " << i + 1;
  }
  EXPECT_EQ(zero_one.bytes_sent_by_rank, adam.bytes_sent_by_rank);
}

// The library does not report its default; the reported one must be in effect.
TEST(TrainerTest, AVarianceFloorThatIsNotGivenIsTheReportedOne) {
  const Corpus corpus = SmallCorpus();
  TrainOptions options = SmallOptions(2);
  options.lr = 1e-3;
  for (const onebitVariant_t variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
    options.variant = variant;
    options.variance_floor.reset();
    const uint64_t unset = Train(options, corpus).parameter_hash;
    options.variance_floor = VarianceFloorOf(options);
    EXPECT_EQ(Train(options, corpus).parameter_hash, unset) << VariantName(variant);
    options.variance_floor = *options.variance_floor + 0.1;
    EXPECT_NE(Train(options, corpus).parameter_hash, unset) << VariantName(variant);
  }
}

TEST(TrainerTest, EvaluationsAlongTheWayChangeNothing) {
  const Corpus corpus = SmallCorpus();
  TrainOptions options = SmallOptions(3);
  const TrainResult without = Train(options, corpus);
  options.evaluate_every_percent = 10;
  const TrainResult with = Train(options, corpus);
  EXPECT_TRUE(without.evaluations.empty());
  EXPECT_EQ(without.parameter_hash, with.parameter_hash);
  EXPECT_EQ(Losses(without), Losses(with));
  EXPECT_EQ(without.bytes_sent_by_rank, with.bytes_sent_by_rank);
  EXPECT_EQ(without.heldout_loss, with.heldout_loss);

  ASSERT_EQ(with.evaluations.size(), 10U);
  double seconds = 0;
  for (size_t i = 0; i < with.evaluations.size(); ++i) {
    EXPECT_EQ(with.evaluations[i].step, 2 * static_cast<int>(i + 1));
    EXPECT_GT(with.evaluations[i].seconds, seconds);
    seconds = with.evaluations[i].seconds;
  }
  EXPECT_EQ(with.evaluations.back().heldout_loss, with.heldout_loss);
}

TEST(TrainerTest, AnEvaluationIsThatOfARunThatEndsThere) {
  const Corpus corpus = SmallCorpus();
  TrainOptions options = SmallOptions(2);
  options.evaluate_every_percent = 50;
  options.lr = 1e-3;
  options.warmup_steps = options.steps;  // or the rate of a shorter run would be another
  options.freeze = 4;
  const TrainResult whole = Train(options, corpus);
  options.lr *= 0.5;
  options.steps = options.warmup_steps = options.steps / 2;
  const TrainResult half = Train(options, corpus);
  ASSERT_EQ(whole.evaluations.size(), 2U);
  EXPECT_EQ(whole.evaluations[0].heldout_loss, half.heldout_loss);
}

TEST(TrainerTest, ARunThatDivergesIsNotEvaluatedAnyMore) {
  TrainOptions options = SmallOptions(2);
  options.evaluate_every_percent = 1;
  options.lr = 1e6;
  options.warmup_steps = 0;
  const TrainResult result = Train(options, SmallCorpus());
  ASSERT_TRUE(result.diverged_at.has_value());
  EXPECT_EQ(result.evaluations.size(), static_cast<size_t>(*result.diverged_at - 1));
}

/** The number of ranks, and the differences from a small run. */
struct Variant {
  int ranks;
  const char* name;
  void (*change)(TrainOptions&);

  friend std::ostream& operator<<(std::ostream& out, const Variant& variant) {
    return out << variant.name;
  }
};

class VariantTest : public testing::TestWithParam<Variant> {};

TEST_P(VariantTest, KeepsReplicasEqualAndFinishes) {
  TrainOptions options = SmallOptions(GetParam().ranks);
  GetParam().change(options);
  const TrainResult result = Train(options, SmallCorpus());  // throws if replicas differ
  EXPECT_FALSE(result.diverged_at.has_value());
  EXPECT_LT(result.steps.back().loss, result.steps.front().loss);
  EXPECT_EQ(result.skipped_steps, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    TrainerTest, VariantTest,
    testing::Values(
        Variant{1, "one_rank", [](TrainOptions&) {}},
        Variant{3, "three_ranks", [](TrainOptions&) {}},
        Variant{5, "five_ranks", [](TrainOptions&) {}},
        Variant{3, "adam", [](TrainOptions& o) { o.optimizer = OptimizerKind::kAdam; }},
        Variant{3, "sharded",
                [](TrainOptions& o) { o.optimizer = OptimizerKind::kShardedOneBitAdam; }},
        Variant{3, "lamb", [](TrainOptions& o) { o.optimizer = OptimizerKind::kLamb; }},
        Variant{3, "one_bit_lamb",
                [](TrainOptions& o) { o.optimizer = OptimizerKind::kOneBitLamb; }},
        Variant{3, "zero_one_adam", LocalSteps}, Variant{1, "zero_one_adam_alone", LocalSteps},
        Variant{3, "deepspeed",
                [](TrainOptions& o) {
                  o.variant = onebitVariantDeepSpeed;
                  o.lr = 1e-3;
                }},
        Variant{3, "deepspeed_zero_one_adam",
                [](TrainOptions& o) {
                  LocalSteps(o);
                  o.variant = onebitVariantDeepSpeed;
                }},
        Variant{2, "deepspeed_lamb",
                [](TrainOptions& o) {
                  o.optimizer = OptimizerKind::kOneBitLamb;
                  o.variant = onebitVariantDeepSpeed;
                }},
        Variant{2, "overlapped_lamb",
                [](TrainOptions& o) {
                  o.optimizer = OptimizerKind::kOneBitLamb;
                  o.is_overlapped = true;
                }},
        Variant{2, "overlapped_zero_one_adam",
                [](TrainOptions& o) {
                  LocalSteps(o);
                  o.is_overlapped = true;
                }},
        Variant{2, "clipped_zero_one_adam",
                [](TrainOptions& o) {
                  LocalSteps(o);
                  o.max_grad_norm = 0.5;
                }},
        Variant{3, "transformer",
                [](TrainOptions& o) {
                  o.shape = {.kind = ModelKind::kTransformer, .context = 8, .embedding = 16};
                }},
        Variant{2, "overlapped_transformer",
                [](TrainOptions& o) {
                  o.shape = {.kind = ModelKind::kTransformer, .context = 8, .embedding = 16};
                  o.is_overlapped = true;
                }},
        Variant{3, "fp4_gradients",
                [](TrainOptions& o) {
                  o.optimizer = OptimizerKind::kAdam;
                  o.codec = onebitCodecFp4;
                  o.block = 128;
                }},
        Variant{2, "clipped_plain_int8_gradients",
                [](TrainOptions& o) {
                  o.optimizer = OptimizerKind::kAdam;
                  o.codec = onebitCodecInt8;
                  o.mode = onebitModePlain;
                  o.max_grad_norm = 0.5;
                }},
        Variant{2, "overlapped_sign_gradients_of_lamb",
                [](TrainOptions& o) {
                  o.optimizer = OptimizerKind::kLamb;
                  o.codec = onebitCodecSign;
                  o.is_overlapped = true;
                }},
        Variant{2, "half", [](TrainOptions& o) { o.gradient_type = onebitFloat16; }},
        Variant{2, "bfloat16", [](TrainOptions& o) { o.gradient_type = onebitBfloat16; }},
        Variant{2, "sign_l1",
                [](TrainOptions& o) {
                  o.mode = onebitModePlain;
                  o.scale_rule = onebitScaleL1;
                }},
        Variant{3, "overlap", [](TrainOptions& o) { o.is_overlapped = true; }},
        Variant{2, "l1", [](TrainOptions& o) { o.scale_rule = onebitScaleL1; }},
        Variant{2, "tensor", [](TrainOptions& o) { o.block = ONEBIT_BLOCK_TENSOR; }},
        Variant{2, "bf16_residual", [](TrainOptions& o) { o.residual_type = onebitBfloat16; }},
        Variant{2, "no_server_residual", [](TrainOptions& o) { o.server_residual = false; }},
        Variant{2, "clipped", [](TrainOptions& o) { o.max_grad_norm = 0.5; }},
        Variant{2, "decay", [](TrainOptions& o) { o.weight_decay = 0.1; }},
        Variant{2, "automatic_freeze",
                [](TrainOptions& o) { o.freeze = ONEBIT_FREEZE_AUTOMATIC; }}),
    [](const auto& variant) { return std::string(variant.param.name); });

TEST(TrainerTest, ADivergedRunOfZeroOneAdamLeavesReplicasEqual) {
  TrainOptions options = SmallOptions(3);
  LocalSteps(options);
  options.lr = 1e6;
  const TrainResult result = Train(options, SmallCorpus());  // throws if replicas differ
  EXPECT_TRUE(result.diverged_at.has_value());
}

TEST(TrainerTest, WithLearningRateZeroNothingDependsOnTheRanks) {
  TrainOptions options = SmallOptions(1);
  options.lr = 0;
  const Corpus corpus = SmallCorpus();
  const TrainResult one = Train(options, corpus);
  options.ranks = 3;
  const TrainResult three = Train(options, corpus);
  EXPECT_EQ(one.parameter_hash, three.parameter_hash);
  EXPECT_EQ(one.heldout_loss, three.heldout_loss);
  EXPECT_NE(Losses(one), Losses(three));
}

TEST(TrainerTest, DenseStepsOfAShardedOptimizerAreAdams) {
  TrainOptions options = SmallOptions(3);
  options.rule.biasCorrection = 1;
  options.weight_decay = 0.1;
  options.optimizer = OptimizerKind::kAdam;
  const std::vector<double> expected = Losses(Train(options, SmallCorpus()));
  options.optimizer = OptimizerKind::kShardedOneBitAdam;
  options.freeze = options.steps;
  const TrainResult sharded = Train(options, SmallCorpus());
  const std::vector<double> losses = Losses(sharded);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-3) << i;
  EXPECT_EQ(sharded.lag, 0);
}

TEST(TrainerTest, OverflowingGradientsAreSkippedByAllRanks) {
  TrainOptions options = SmallOptions(3);
  options.lr = 0;
  const uint64_t untouched = Train(options, SmallCorpus()).parameter_hash;
  options.lr = 1;
  options.gradient_type = onebitFloat16;
  options.loss_scale = 1e30;
  for (const OptimizerKind kind : {OptimizerKind::kOneBitAdam, OptimizerKind::kShardedOneBitAdam}) {
    options.optimizer = kind;
    const TrainResult result = Train(options, SmallCorpus());
    EXPECT_EQ(result.skipped_steps, 20U);
    EXPECT_TRUE(std::all_of(result.steps.begin(), result.steps.end(),
                            [](const StepRecord& step) { return step.is_skipped; }));
    EXPECT_EQ(result.parameter_hash, untouched);
  }
}

TEST(TrainerTest, OverflowingAveragesAreSkippedByAllRanks) {
  TrainOptions options = SmallOptions(3);
  options.lr = 0;
  const uint64_t untouched = Train(options, SmallCorpus()).parameter_hash;
  options.lr = 1;
  options.optimizer = OptimizerKind::kAdam;
  options.gradient_type = onebitFloat16;
  options.loss_scale = 1e30;
  for (const onebitMode_t mode : {onebitModeEf, onebitModePlain}) {
    options.codec = onebitCodecFp4;
    options.mode = mode;
    const TrainResult result = Train(options, SmallCorpus());
    EXPECT_EQ(result.skipped_steps, 20U);
    EXPECT_EQ(result.parameter_hash, untouched);
  }
}

TEST(TrainerTest, GradientsOfEightBitsLearnLikeExactOnes) {
  TrainOptions options = SmallOptions(2);
  options.steps = 60;
  options.optimizer = OptimizerKind::kAdam;
  const TrainResult exact = Train(options, SmallCorpus());
  options.codec = onebitCodecInt8;
  options.block = 256;
  const TrainResult eight = Train(options, SmallCorpus());
  EXPECT_NE(eight.parameter_hash, exact.parameter_hash);
  EXPECT_NEAR(*eight.heldout_loss, *exact.heldout_loss, 0.02 * *exact.heldout_loss);
}

TEST(TrainerTest, ADivergedRunEndsWithItsStepAndNoHeldoutLoss) {
  TrainOptions options = SmallOptions(2);
  options.lr = 1e6;
  options.warmup_steps = 0;
  const TrainResult result = Train(options, SmallCorpus());
  ASSERT_TRUE(result.diverged_at.has_value());
  EXPECT_EQ(result.steps.size(), static_cast<size_t>(*result.diverged_at));
  EXPECT_FALSE(result.steps.back().loss <= kDivergedLoss);
  EXPECT_FALSE(result.heldout_loss.has_value());
}

class FailureTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(FailureTest, OfOneRankStopsAllAndIsExplained) {
  const int failing_rank = std::get<0>(GetParam());
  const int failing_step = std::get<1>(GetParam());
  TrainHooks hooks;
  hooks.before_step = [=](int rank, int step) {
    if (rank == failing_rank && step == failing_step) throw std::runtime_error("the disk is full");
  };
  EXPECT_EQ(ErrorOf(SmallOptions(3), hooks),
            fmt::format("rank {}: step {}: the disk is full", failing_rank, failing_step + 1));
}

INSTANTIATE_TEST_SUITE_P(TrainerTest, FailureTest,
                         testing::Combine(testing::Values(0, 2), testing::Values(0, 1, 12)));

TEST(TrainerTest, AnErrorOfTheLibraryIsReportedInItsWords) {
  TrainOptions options = SmallOptions(2);
  options.block = 7;
  const std::string error = ErrorOf(options);
  EXPECT_NE(error.find("set-up: onebitOptimizerCreate"), std::string::npos) << error;
  EXPECT_NE(error.find("block"), std::string::npos) << error;
}

TEST(TrainerTest, HooksSeeEveryStep) {
  std::atomic<int> before = 0;
  int last = 0;
  const TrainHooks hooks{
      .on_step = [&](int steps_done, const StepRecord&) { EXPECT_EQ(steps_done, ++last); },
      .before_step = [&](int, int) { ++before; }};
  Train(SmallOptions(2), SmallCorpus(), hooks);
  EXPECT_EQ(last, 20);
  EXPECT_EQ(before, 40);
}

}  // namespace
}  // namespace onebit::train
