// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs with --outer: their bytes, their replicas, and what they repeat.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include "perf/train_text/outer_options.h"
#include "perf/train_text/trainer.h"
#include "tests/train/small_run.h"

namespace onebit::train {
namespace {

TrainOptions OuterOptions(int ranks) {
  TrainOptions options = SmallOptions(ranks);
  options.optimizer = OptimizerKind::kAdam;
  options.outer = OuterRule{.every = 5, .fragments = 2, .overlap = 1};
  return options;
}

TEST(OuterRunTest, SendsWhatTheFormulaSays) {
  constexpr struct {
    onebitCodec_t codec;
    onebitMode_t mode;
    int block;
  } kCodecs[] = {{onebitCodecFp4, onebitModePlain, 128},
                 {onebitCodecFp4, onebitModeEf, 128},
                 {onebitCodecInt8, onebitModePlain, 256},
                 {onebitCodecSign, onebitModeEf, 1024}};
  for (const int ranks : {2, 3}) {
    for (const int hidden : {9, 200}) {  // one exchange and two
      TrainOptions options = OuterOptions(ranks);
      options.shape.hidden.fill(hidden);
      const auto check = [&options](const char* what) {
        const TrainResult result = Train(options, SmallCorpus());
        ASSERT_TRUE(result.outer && result.outer->bytes_expected) << what;
        // Fragments after steps 2, 7, 12, 17 and 5, 10, 15, 20.
        EXPECT_EQ(result.outer->averages, 8U) << what;
        EXPECT_EQ(result.outer->bytes, *result.outer->bytes_expected) << what;
        EXPECT_EQ(result.bytes_sent_by_rank[0], result.outer->bytes + result.final_sync_bytes);
        // The last average ends in the flush, and in no step.
        uint64_t steps = 0;
        for (const StepRecord& step : result.steps) {
          steps += step.bytes_sent;
          EXPECT_EQ(step.bytes_sent == 0, step.stage == onebitStageLocal);
        }
        EXPECT_LT(steps, result.outer->bytes);
        EXPECT_GT(steps, result.outer->bytes * 3 / 4);
      };
      check("dense");
      for (const auto& [codec, mode, block] : kCodecs) {
        options.codec = codec;
        options.mode = mode;
        options.block = block;
        check("compressed");
      }
    }
  }
}

TEST(OuterRunTest, LearnsInAFiftiethOfTheBytes) {
  TrainOptions options = OuterOptions(4);
  options.steps = 60;
  options.outer->every = 10;
  options.codec = onebitCodecFp4;
  options.mode = onebitModePlain;
  options.block = 128;
  const TrainResult result = Train(options, SmallCorpus());
  options.outer.reset();
  options.codec.reset();
  const TrainResult dense = Train(options, SmallCorpus());
  ASSERT_TRUE(result.heldout_loss && dense.heldout_loss);
  EXPECT_LT(*result.heldout_loss, 0.5 * result.steps[0].loss);
  EXPECT_LT(50 * result.outer->bytes, dense.bytes_sent_by_rank[0]);
}

TEST(OuterRunTest, CountsItsMemory) {
  TrainOptions options = OuterOptions(2);
  const auto held = [&options] {
    const TrainResult result = Train(options, SmallCorpus());
    return static_cast<double>(result.state_bytes) / static_cast<double>(result.parameter_count);
  };
  const double dense = held();
  // Global parameters, momentum, and an average with its snapshot.
  options.outer->momentum = 0;
  EXPECT_NEAR(held(), dense - 4, 0.01);
  options.outer.reset();
  EXPECT_NEAR(held(), dense - 16, 0.01);
  options.codec = onebitCodecFp4;
  options.block = 128;
  EXPECT_GE(held(), dense - 8);  // with residuals
}

TEST(OuterRunTest, RepeatsToTheBit) {
  const TrainOptions options = OuterOptions(3);
  const TrainResult first = Train(options, SmallCorpus());
  const TrainResult second = Train(options, SmallCorpus());
  EXPECT_EQ(first.parameter_hash, second.parameter_hash);
  EXPECT_EQ(Losses(first), Losses(second));
}

TEST(OuterRunTest, WarnsOfCoarseFeedbackUnderMomentum) {
  TrainOptions options = OuterOptions(2);
  options.codec = onebitCodecSign;
  options.outer->merge = 0;
  EXPECT_TRUE(OuterWarning(options).has_value());
  options.outer->merge = 0.5;
  EXPECT_FALSE(OuterWarning(options).has_value());
  options.outer->is_rebase = true;
  EXPECT_TRUE(OuterWarning(options).has_value());
  options.outer->momentum = 0;
  EXPECT_FALSE(OuterWarning(options).has_value());
  options.outer = OuterRule{.merge = 0};
  options.mode = onebitModePlain;
  EXPECT_FALSE(OuterWarning(options).has_value());
  options.mode = onebitModeEf;
  options.codec = onebitCodecFp4;
  EXPECT_FALSE(OuterWarning(options).has_value());
}

}  // namespace
}  // namespace onebit::train
