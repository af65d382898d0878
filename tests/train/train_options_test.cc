// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The command line of train_text.
#include "perf/train_text/train_options.h"

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "perf/common/tool_error.h"

namespace onebit::train {
namespace {

using Arguments = std::vector<const char*>;

std::optional<TrainOptions> Parse(Arguments arguments) {
  arguments.insert(arguments.begin(), "train_text");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

TrainOptions MustParse(const Arguments& arguments) { return Parse(arguments).value(); }

TEST(OptionsTest, DefaultsAreThoseOfTheMeasuredRuns) {
  const TrainOptions options = MustParse({});
  EXPECT_EQ(options.ranks, 4);
  EXPECT_EQ(options.steps, 500);
  EXPECT_EQ(options.batch, 64);
  EXPECT_EQ(options.lr, 3e-3);
  EXPECT_EQ(options.warmup_steps, 40);
  EXPECT_EQ(options.beta1, 0.9);
  EXPECT_EQ(options.beta2, 0.99);
  EXPECT_FALSE(options.variance_floor.has_value());
  EXPECT_EQ(options.block, 4096);
  EXPECT_EQ(options.scale_rule, onebitScaleL2);
  EXPECT_EQ(options.mode, onebitModeEf);
  EXPECT_EQ(options.seed, 0U);
  EXPECT_EQ(options.optimizer, OptimizerKind::kOneBitAdam);
  EXPECT_TRUE(options.server_residual);
}

TEST(OptionsTest, ReadsEveryOption) {
  const TrainOptions options = MustParse({"-t",
                                          "2",
                                          "--steps",
                                          "7",
                                          "--batch",
                                          "5",
                                          "--lr",
                                          "1e-4",
                                          "--warmup",
                                          "3",
                                          "--beta1",
                                          "0.8",
                                          "--beta2",
                                          "0.97",
                                          "--freeze",
                                          "auto",
                                          "--seed",
                                          "18446744073709551615",
                                          "--mode",
                                          "ef",
                                          "--scale",
                                          "l1",
                                          "--block",
                                          "tensor",
                                          "--hidden",
                                          "33,17",
                                          "--optimizer",
                                          "onebit-adam",
                                          "--json",
                                          "out.json",
                                          "--text",
                                          "book",
                                          "--grad-type",
                                          "half",
                                          "--max-grad-norm",
                                          "1.5",
                                          "--weight-decay",
                                          "0.1",
                                          "--variance-floor",
                                          "0",
                                          "--no-server-residual",
                                          "--residual",
                                          "bfloat16",
                                          "--loss-scale",
                                          "8",
                                          "--check-replicas"});
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.batch, 5);
  EXPECT_EQ(options.lr, 1e-4);
  EXPECT_EQ(options.warmup_steps, 3);
  EXPECT_EQ(options.beta1, 0.8);
  EXPECT_EQ(options.beta2, 0.97);
  EXPECT_EQ(options.freeze, ONEBIT_FREEZE_AUTOMATIC);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.scale_rule, onebitScaleL1);
  EXPECT_EQ(options.block, ONEBIT_BLOCK_TENSOR);
  EXPECT_EQ(options.shape.hidden, (std::array<int, 2>{33, 17}));
  EXPECT_EQ(options.json_path, "out.json");
  EXPECT_EQ(options.text_path, "book");
  EXPECT_EQ(options.gradient_type, onebitFloat16);
  EXPECT_EQ(options.max_grad_norm, 1.5);
  EXPECT_EQ(options.weight_decay, 0.1);
  EXPECT_EQ(options.variance_floor, 0);
  EXPECT_FALSE(options.server_residual);
  EXPECT_EQ(options.residual_type, onebitBfloat16);
  EXPECT_EQ(options.gradient_scale(), 8);
  EXPECT_TRUE(options.check_replicas);
  EXPECT_FALSE(options.is_overlapped);
  EXPECT_TRUE(MustParse({"--overlap"}).is_overlapped);
}

TEST(OptionsTest, OnlyFp16GradientsAreScaledByDefault) {
  EXPECT_EQ(MustParse({}).gradient_scale(), 1);
  EXPECT_EQ(MustParse({"--grad-type", "bfloat16"}).gradient_scale(), 1);
  EXPECT_EQ(MustParse({"--grad-type", "half"}).gradient_scale(), 1024);
}

TEST(OptionsTest, ACodecOfGradientsHasAModeAndABlockOfItsOwn) {
  EXPECT_FALSE(MustParse({"--optimizer", "adam"}).codec.has_value());
  const TrainOptions fp4 = MustParse({"--optimizer", "adam", "--codec", "fp4"});
  EXPECT_EQ(fp4.codec, onebitCodecFp4);
  EXPECT_EQ(fp4.mode, onebitModeEf);
  EXPECT_EQ(fp4.block, 128);
  EXPECT_EQ(ModeName(fp4), "ef");
  const TrainOptions plain =
      MustParse({"--optimizer", "lamb", "--codec", "int8", "--mode", "plain", "--block", "64"});
  EXPECT_EQ(plain.mode, onebitModePlain);
  EXPECT_EQ(plain.block, 64);
  EXPECT_EQ(ModeName(plain), "plain");
  const TrainOptions stochastic = MustParse({"--optimizer", "adam", "--codec", "int8s"});
  EXPECT_EQ(stochastic.mode, onebitModePlain);
  EXPECT_EQ(stochastic.block, 256);
  const TrainOptions signs =
      MustParse({"--optimizer", "adam", "--codec", "sign", "--scale", "l1", "--mode", "sign"});
  EXPECT_EQ(signs.block, 4096);
  EXPECT_EQ(ModeName(signs), "sign");
}

TEST(OptionsTest, AnOuterOptimizerHasMembersAndAModeOfItsOwn) {
  EXPECT_FALSE(MustParse({}).outer.has_value());
  const TrainOptions options =
      MustParse({"--optimizer", "adam", "--codec", "fp4", "--outer",
                 "every=15,merge=0.25,fragments=3,overlap=2,lr=1,momentum=0.5,nesterov=0"});
  ASSERT_TRUE(options.outer.has_value());
  EXPECT_EQ(options.outer->every, 15);
  EXPECT_EQ(options.outer->merge, 0.25F);
  EXPECT_EQ(options.outer->fragments, 3);
  EXPECT_EQ(options.outer->overlap, 2);
  EXPECT_EQ(options.outer->rate, 1);
  EXPECT_EQ(options.outer->momentum, 0.5F);
  EXPECT_FALSE(options.outer->is_nesterov || options.outer->is_rebase);
  EXPECT_EQ(options.mode, onebitModePlain);
  EXPECT_EQ(options.block, 128);
  const TrainOptions rebase =
      MustParse({"--optimizer", "lamb", "--codec", "int2", "--outer", "merge=rebase"});
  EXPECT_TRUE(rebase.outer->is_rebase && rebase.outer->is_nesterov);
  EXPECT_EQ(rebase.outer->every, 30);
  EXPECT_EQ(rebase.mode, onebitModeEf);
  const TrainOptions with_mode =
      MustParse({"--optimizer", "adam", "--codec", "fp4", "--mode", "ef", "--outer", "every=2"});
  EXPECT_EQ(with_mode.mode, onebitModeEf);
}

TEST(OptionsTest, ATransformerHasABatchOfItsOwn) {
  EXPECT_EQ(MustParse({}).shape.kind, ModelKind::kMlp);
  const TrainOptions options = MustParse({"--model", "transformer"});
  EXPECT_EQ(options.shape.kind, ModelKind::kTransformer);
  EXPECT_EQ(options.shape.context, 32);
  EXPECT_EQ(options.batch, 16);
  EXPECT_EQ(MustParse({"--model", "transformer", "--batch", "3"}).batch, 3);
}

TEST(OptionsTest, HelpIsPrintedInsteadOfARun) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(Parse({"--help"}).has_value());
  EXPECT_NE(testing::internal::GetCapturedStdout().find("--freeze"), std::string::npos);
}

struct BadUsage {
  Arguments arguments;
  const char* message;  // a part of it

  friend std::ostream& operator<<(std::ostream& out, const BadUsage& usage) {
    for (const char* argument : usage.arguments) out << argument << ' ';
    return out;
  }
};

class BadUsageTest : public testing::TestWithParam<BadUsage> {};

std::string UsageErrorOf(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const perf::UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST_P(BadUsageTest, IsExplained) {
  const std::string message = UsageErrorOf([] { Parse(GetParam().arguments); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    OptionsTest, BadUsageTest,
    testing::Values(
        BadUsage{{"--bogus"}, "--bogus"}, BadUsage{{"positional"}, "positional"},
        BadUsage{{"--steps", "0"}, "--steps"}, BadUsage{{"--steps", "2.5"}, "--steps"},
        BadUsage{{"--steps"}, "--steps"}, BadUsage{{"--steps", "1", "--steps", "2"}, "--steps"},
        BadUsage{{"-t", "0"}, "--threads"}, BadUsage{{"--batch", "x"}, "--batch"},
        BadUsage{{"--lr", "nan"}, "--lr"}, BadUsage{{"--lr", "inf"}, "--lr"},
        BadUsage{{"--lr", "-1"}, "--lr"}, BadUsage{{"--beta2", "1"}, "[0, 1)"},
        BadUsage{{"--seed", "-1"}, "negative"}, BadUsage{{"--freeze", "0"}, "--freeze"},
        BadUsage{{"--freeze", "never"}, "neither a number nor auto"},
        BadUsage{{"--block", "100"}, "multiple of 64"}, BadUsage{{"--block", "0"}, "--block"},
        BadUsage{{"--block", "layer"}, "nor 'tensor'"}, BadUsage{{"--hidden", "8"}, "--hidden"},
        BadUsage{{"--hidden", "8,8,8"}, "--hidden"}, BadUsage{{"--hidden", "0,8"}, "--hidden"},
        BadUsage{{"--mode", "dense"}, "ef|sign"}, BadUsage{{"--scale", "max"}, "l2|l1"},
        BadUsage{{"--model", "gpt"}, "mlp|transformer"},
        BadUsage{{"--model", "transformer", "--hidden", "8,8"}, "--hidden: has no effect"},
        BadUsage{{"--optimizer", "sgd"}, "adam|onebit-adam|sharded-onebit-adam|lamb|"},
        BadUsage{{"--grad-type", "int8"}, "float|half|bfloat16"},
        BadUsage{{"--residual", "half"}, "float|bfloat16"},
        BadUsage{{"--loss-scale", "0"}, "--loss-scale"}));

INSTANTIATE_TEST_SUITE_P(
    Survival, BadUsageTest,
    testing::Values(BadUsage{{"--survive", "2", "--procs", "4"}, "2 is not RANK@STEP"},
                    BadUsage{{"--survive", "a@2", "--procs", "4"}, "a@2 is not RANK@STEP"},
                    BadUsage{{"--survive", "-1@2", "--procs", "4"}, "-1@2 is not RANK@STEP"},
                    BadUsage{{"--survive", "1@0", "--procs", "4"}, "1@0 is not RANK@STEP"},
                    BadUsage{{"--survive", "4@1", "--procs", "4"}, "no rank 4 among 4"},
                    BadUsage{{"--survive", "1@501", "--procs", "4"}, "no step 501 in 500"},
                    BadUsage{{"--survive", "0@1", "--procs", "1"}, "none is left"},
                    BadUsage{{"--survive", "1@1"}, "threads die together"},
                    BadUsage{{"--survive", "1@1", "--procs", "2", "--transport", "mpi"},
                             "mpirun -np 2"}));

TEST(OptionsTest, RanksOfMpiCannotSurviveALoss) {
  const char* const arguments[] = {"train_text", "--survive", "1@1", "--transport", "mpi"};
  const std::string message =
      UsageErrorOf([&] { ParseOptions(5, arguments, 0); });  // as mpirun starts it
  EXPECT_NE(message.find("mpi cannot go on without a rank"), std::string::npos) << message;
}

TEST(OptionsTest, SurviveNamesRankAndStep) {
  const TrainOptions options = MustParse({"--survive", "2@250", "--procs", "4"});
  ASSERT_TRUE(options.survive.has_value());
  EXPECT_EQ(options.survive->rank, 2);
  EXPECT_EQ(options.survive->step, 250);
  EXPECT_FALSE(MustParse({"--procs", "4"}).survive.has_value());
}

INSTANTIATE_TEST_SUITE_P(
    OptionsWithoutEffect, BadUsageTest,
    testing::Values(
        BadUsage{{"--optimizer", "adam", "--mode", "ef"}, "--mode: has no effect"},
        BadUsage{{"--optimizer", "adam", "--freeze", "auto"}, "--freeze"},
        BadUsage{{"--no-server-residual", "--optimizer", "adam"}, "does not compress"},
        BadUsage{{"--optimizer", "adam", "--variance-floor", "0"}, "--variance-floor"},
        BadUsage{{"--mode", "sign", "--residual", "float"}, "no residuals"},
        BadUsage{{"--mode", "sign", "--no-server-residual"}, "no residuals"},
        BadUsage{{"--overlap", "--max-grad-norm", "1"}, "--max-grad-norm: has no effect"},
        BadUsage{{"--overlap", "--freeze", "auto"}, "no common step"},
        BadUsage{{"--freeze", "settled"}, "needs --bias-correction"},
        BadUsage{{"--optimizer", "zero-one-adam", "--bias-correction"}, "a mean over an interval"},
        BadUsage{{"--variant", "deepspeed", "--bias-correction"}, "no such thing"},
        BadUsage{{"--optimizer", "lamb", "--variant", "paper"}, "does not compress"},
        BadUsage{{"--optimizer", "lamb", "--factor-max", "2"}, "does not compress"},
        BadUsage{{"--optimizer", "adam", "--max-coeff", "2"}, "LAMB's"},
        BadUsage{{"--coeff-beta", "0.5"}, "LAMB's"},
        BadUsage{{"--var-freeze-step", "5"}, "zero-one-adam's"},
        BadUsage{{"--rate-tied", "1"}, "zero-one-adam's"},
        BadUsage{{"--variant", "deepspeed", "--freeze", "auto"}, "no such thing"}));

INSTANTIATE_TEST_SUITE_P(
    OptionsOfAShardedOptimizer, BadUsageTest,
    testing::Values(
        BadUsage{{"--gather", "sign"}, "--gather: has no effect with --optimizer onebit-adam"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--gather", "topk"}, "sign|int2|fp4"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--codec", "int8s"}, "has error feedback"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--codec", "topk"}, "--codec"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--mode", "ef"}, "no choice of it"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--max-grad-norm", "1"}, "no choice of it"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--variant", "paper"}, "no choice of it"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--no-server-residual"}, "no choice of it"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--overlap"}, "have a part each"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--procs", "2", "--survive", "1@2"},
                 "have a part each"},
        BadUsage{{"--optimizer", "sharded-onebit-adam", "--freeze", "auto"}, "must be a number"}));

INSTANTIATE_TEST_SUITE_P(
    CodecsOfGradients, BadUsageTest,
    testing::Values(
        BadUsage{{"--codec", "fp4"}, "--codec: has no effect with --optimizer onebit-adam"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp5"}, "sign|fp4|int8|uint8mm|int2|int8s"},
        BadUsage{{"--optimizer", "adam", "--codec", "int8s", "--mode", "ef"}, "no error feedback"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp4", "--mode", "sign"}, "use --mode plain"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp4", "--scale", "l1"}, "for --codec sign"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp4", "--block", "tensor"}, "--block"},
        BadUsage{
            {"--optimizer", "adam", "--codec", "int2", "--mode", "plain", "--residual", "float"},
            "with --mode plain, which has no residuals"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp4", "--variance-floor", "0"},
                 "--variance-floor"},
        BadUsage{{"--optimizer", "adam", "--codec", "fp4", "--procs", "3", "--survive", "1@2"},
                 "could not catch up"}));

INSTANTIATE_TEST_SUITE_P(
    OuterOptimizers, BadUsageTest,
    testing::Values(
        BadUsage{{"--optimizer", "adam", "--outer", "every"}, "every is not NAME=VALUE"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=5,every=6"}, "every is given twice"},
        BadUsage{{"--optimizer", "adam", "--outer", ""}, "give NAME=VALUE, such as every=30"},
        BadUsage{{"--optimizer", "adam", "--outer", "h=3"}, "h is none of every, merge"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=0"}, "every: 0 is not 1 or more"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=2.5"}, "every: 2.5 is not"},
        BadUsage{{"--optimizer", "adam", "--outer", "merge=1"}, "merge: 1 is not in [0, 1)"},
        BadUsage{{"--optimizer", "adam", "--outer", "lr=nan"}, "lr: nan is not more than 0"},
        BadUsage{{"--optimizer", "adam", "--outer", "momentum=1"}, "momentum: 1 is not in [0, 1)"},
        BadUsage{{"--optimizer", "adam", "--outer", "nesterov=2"}, "nesterov: 2 is not 0 or 1"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=3,overlap=3"}, "is not below every=3"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=3,fragments=4"}, "is more than every=3"},
        BadUsage{{"--optimizer", "adam", "--outer", "fragments=30"}, "tensors of the model"},
        BadUsage{{"--outer", "every=3"}, "averages in every step: use adam or lamb"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=3", "--overlap"}, "it has an overlap"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=3", "--codec", "topk"}, "onebit.torch"},
        BadUsage{{"--optimizer", "adam", "--outer", "every=3", "--procs", "3", "--survive", "1@2"},
                 "goes on without a rank"}));

INSTANTIATE_TEST_SUITE_P(
    OptionsOfZeroOneAdam, BadUsageTest,
    testing::Values(
        BadUsage{{"--optimizer", "zero-one-adam", "--freeze", "9"}, "--var-freeze-step"},
        BadUsage{{"--optimizer", "zero-one-adam", "--factor-min", "1"}, "LAMB's"},
        BadUsage{{"--optimizer", "zero-one-adam", "--var-update-scaler", "0"},
                 "--var-update-scaler"},
        BadUsage{{"--optimizer", "zero-one-adam", "--rate-tied", "2"}, "--rate-tied"},
        BadUsage{{"--optimizer", "zero-one-adam", "--rate-tied", "1", "--local-step-scaler", "9"},
                 "the learning rate doubles the interval"},
        BadUsage{{"--optimizer", "zero-one-adam", "--variant", "deepspeed", "--rate-tied", "0"},
                 "--rate-tied: has no effect"},
        BadUsage{
            {"--optimizer", "zero-one-adam", "--variant", "deepspeed", "--local-step-start", "9"},
            "no such thing"}));

}  // namespace
}  // namespace onebit::train
