// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Short runs on a small text: reproducible, equal on all ranks, with exactly the bytes promised.
#include "perf/train_text/trainer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "perf/train_text/counter_random.h"
#include "perf/train_text/optimizer_config.h"

namespace onebit::train {
namespace {

constexpr size_t kHeaderBytes = 64;
constexpr size_t kScaleBytes = 4;
constexpr size_t kChunkAlignment = 64;

/** Words drawn at random: something to learn, and always the same. */
Corpus SmallCorpus() {
  constexpr std::array<std::string_view, 6> kWords = {"one ",      "bit ", "per ",
                                                      "element, ", "no ",  "more.\n"};
  const CounterRandom random(3, RandomStream::kBatches, 0);
  Corpus corpus;
  for (uint64_t i = 0; corpus.bytes.size() < 20'000; ++i) {
    const std::string_view word = kWords[random.Below(i, kWords.size())];
    corpus.bytes.insert(corpus.bytes.end(), word.begin(), word.end());
  }
  corpus.train_bytes = corpus.bytes.size() - corpus.bytes.size() / 20;
  return corpus;
}

/** A run of less than a second. */
TrainOptions SmallOptions(int ranks) {
  TrainOptions options;
  options.ranks = ranks;
  options.steps = 20;
  options.batch = 8;
  options.warmup_steps = 4;
  options.shape.hidden = {33, 17};  // layers and chunks that end anywhere
  options.block = 1024;
  options.check_replicas = true;
  return options;
}

std::vector<double> Losses(const TrainResult& result) {
  std::vector<double> losses;
  for (const StepRecord& step : result.steps) losses.push_back(step.loss);
  return losses;
}

size_t DivideUp(size_t dividend, size_t divisor) { return (dividend + divisor - 1) / divisor; }

/** Elements of each rank's chunk. */
std::vector<size_t> ChunkElements(size_t count, size_t ranks) {
  const size_t chunk = kChunkAlignment * DivideUp(count, ranks * kChunkAlignment);
  std::vector<size_t> elements;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t begin = std::min(count, rank * chunk);
    elements.push_back(std::min(count - begin, chunk));
  }
  return elements;
}

size_t PayloadBytes(size_t elements, size_t block) {
  return kScaleBytes * DivideUp(elements, block) + DivideUp(elements, 8);
}

/** Bytes that rank 0 sends in one compressed allreduce of a tensor in `segments` segments. */
size_t TwoExchangeBytes(const std::vector<size_t>& chunks, size_t block, size_t segments) {
  size_t bytes = 0;
  for (size_t peer = 1; peer < chunks.size(); ++peer) {
    bytes += kHeaderBytes * segments + PayloadBytes(chunks[peer], block);  // their chunk
    bytes += kHeaderBytes * segments + PayloadBytes(chunks[0], block);     // the mean of its own
  }
  return bytes;
}

size_t OneExchangeBytes(const std::vector<size_t>& chunks, size_t block) {
  size_t scales = 0, elements = 0;
  for (const size_t chunk : chunks) {
    scales += DivideUp(chunk, block);
    elements += chunk;
  }
  return (chunks.size() - 1) * (kHeaderBytes + kScaleBytes * scales + DivideUp(elements, 8));
}

onebitCompressorStats_t CompressorStats(size_t count, int ranks, int block) {
  std::vector<UniqueComm> comms(static_cast<size_t>(ranks));
  EXPECT_EQ(MakeComms(comms), onebitSuccess);
  onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
  config.block = block;
  UniqueCompressor compressor;
  EXPECT_EQ(MakeCompressor(compressor, comms[0].get(), count, onebitFloat32, &config),
            onebitSuccess);
  onebitCompressorStats_t stats{};
  stats.size = sizeof(stats);
  EXPECT_EQ(onebitCompressorGetStats(compressor.get(), &stats), onebitSuccess);
  return stats;
}

std::string ErrorOf(const TrainOptions& options, const TrainHooks& hooks = {}) {
  try {
    Train(options, SmallCorpus(), hooks);
  } catch (const TrainError& error) {
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

/** Number of ranks, and what differs from a small run. */
struct Variant {
  int ranks;
  const char* name;
  void (*change)(TrainOptions&);

  friend std::ostream& operator<<(std::ostream& out, const Variant& variant) {
    return out << variant.name;
  }
};

/** 0/1 Adam whose last interval is open when the steps are done: a sync in every fourth from step
 * 11 on. */
void LocalSteps(TrainOptions& options) {
  options.optimizer = OptimizerKind::kZeroOneAdam;
  options.lr = 1e-3;
  options.steps = 30;
  options.rule.varFreezeStep = 10;
  options.rule.localStepScaler = 1;
  options.rule.localStepClipper = 4;
}

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
        Variant{2, "half", [](TrainOptions& o) { o.gradient_type = onebitFloat16; }},
        Variant{2, "bfloat16", [](TrainOptions& o) { o.gradient_type = onebitBfloat16; }},
        Variant{2, "sign_l1",
                [](TrainOptions& o) {
                  o.mode = onebitModeSign;
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

class BytesTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(BytesTest, CompressedStepsSendExactlyWhatTheFormatSays) {
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  options.steps = 6;
  options.freeze = 2;
  const TrainResult result = Train(options, SmallCorpus());
  const onebitCompressorStats_t stats =
      CompressorStats(result.parameter_count, options.ranks, options.block);
  const std::vector<size_t> chunks =
      ChunkElements(result.parameter_count, static_cast<size_t>(options.ranks));
  const auto block = static_cast<size_t>(options.block);
  const size_t expected = stats.exchanges == 1 ? OneExchangeBytes(chunks, block)
                                               : TwoExchangeBytes(chunks, block, stats.segments);
  EXPECT_EQ(stats.wire_bytes, expected);
  for (size_t step = 2; step < result.steps.size(); ++step) {
    EXPECT_EQ(result.steps[step].bytes_sent, expected) << "step " << step + 1;
  }
}

TEST_P(BytesTest, EveryOptimizerSendsWhatTheFormulaSays) {
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kOneBitAdam,
                                   OptimizerKind::kOneBitLamb, OptimizerKind::kZeroOneAdam}) {
    for (const onebitDataType_t type : {onebitFloat32, onebitBfloat16}) {
      if (kind == OptimizerKind::kZeroOneAdam) LocalSteps(options);
      options.optimizer = kind;
      options.gradient_type = type;
      const TrainResult result = Train(options, SmallCorpus());
      ASSERT_EQ(result.skipped_steps, 0U);
      EXPECT_EQ(result.bytes_expected, result.bytes_sent_by_rank[0]) << OptimizerName(kind);
    }
  }
}

TEST_P(BytesTest, TheStepsOfARankAddUpToItsTotal) {
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  const TrainResult result = Train(options, SmallCorpus());
  uint64_t sum = 0;
  for (const StepRecord& step : result.steps) sum += step.bytes_sent;
  EXPECT_EQ(result.bytes_sent_by_rank.size(), static_cast<size_t>(options.ranks));
  EXPECT_EQ(result.bytes_sent_by_rank[0], sum);
}

INSTANTIATE_TEST_SUITE_P(TrainerTest, BytesTest,
                         testing::Combine(testing::Values(2, 3), testing::Values(9, 200)));

TEST(TrainerTest, AdamSendsFullPrecisionInEveryStep) {
  TrainOptions options = SmallOptions(2);
  options.optimizer = OptimizerKind::kAdam;
  const TrainResult result = Train(options, SmallCorpus());
  EXPECT_FALSE(result.frozen_at.has_value());
  for (const StepRecord& step : result.steps) {
    EXPECT_EQ(step.stage, onebitStageDense);
    // Two exchanges, each of a header and about half of the parameters.
    const size_t payload = sizeof(float) * result.parameter_count;
    EXPECT_NEAR(static_cast<double>(step.bytes_sent), static_cast<double>(payload),
                2 * kHeaderBytes + sizeof(float) * kChunkAlignment);
  }
}

/** The kinds of steps as onebit_schedule prints them. */
std::string Schedule(const TrainResult& result) {
  std::string schedule;
  for (const StepRecord& step : result.steps) {
    schedule += std::string("F1B.")[static_cast<size_t>(step.stage)];
  }
  return schedule;
}

/** The same as the library plans it, from learning rates alone. Here steps that differ in what they
 * compress, and steps without effect, are told from others by what they send only. */
std::string PlannedSchedule(const TrainOptions& options, const TrainResult& result) {
  const onebitOptimizerConfig_t optimizer = ConfigOf(options);
  onebitPolicyConfig_t config = ONEBIT_POLICY_CONFIG_INIT;
  config.algorithm = optimizer.algorithm;
  config.variant = optimizer.variant;
  config.freezeStep = optimizer.freezeStep;
  config.varFreezeStep = optimizer.varFreezeStep;
  config.varUpdateScaler = optimizer.varUpdateScaler;
  config.localStepScaler = optimizer.localStepScaler;
  config.localStepClipper = optimizer.localStepClipper;
  config.rateTied = optimizer.rateTied;
  onebitPolicy_t policy = nullptr;
  EXPECT_EQ(onebitPolicyCreate(&policy, &config), onebitSuccess) << onebitGetLastError(nullptr);
  std::string schedule;
  for (const StepRecord& step : result.steps) {
    onebitStepPlan_t plan = ONEBIT_STEP_PLAN_INIT;
    EXPECT_EQ(onebitPolicyNext(policy, step.lr, &plan), onebitSuccess);
    EXPECT_EQ(onebitPolicyCommit(policy, step.lr, 0), onebitSuccess);
    schedule += plan.kind == 'u' ? '1' : plan.kind == 'i' ? '.' : plan.kind;
  }
  onebitPolicyDestroy(policy);
  return schedule;
}

TEST(TrainerTest, StepsAreThoseOfThePolicy) {
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
      EXPECT_EQ(Schedule(result), PlannedSchedule(options, result)) << OptimizerName(kind);
    }
  }
}

TEST(TrainerTest, ZeroOneAdamSendsNothingInLocalSteps) {
  TrainOptions options = SmallOptions(3);
  LocalSteps(options);
  const TrainResult result = Train(options, SmallCorpus());
  EXPECT_EQ(Schedule(result), "BBBBBBBBBB1...1...1...1...1...");
  const StepCounts counts = CountSteps(result.steps);
  EXPECT_EQ(counts.rounds, 15U);
  EXPECT_EQ(counts.dense, 10U);
  EXPECT_EQ(counts.compressed, 15U);
  EXPECT_EQ(counts.local, 15U);
  for (const StepRecord& step : result.steps) {
    EXPECT_EQ(step.bytes_sent == 0, step.stage == onebitStageLocal);
  }
}

TEST(TrainerTest, ARunThatEndsBetweenSyncsEndsWithOneMore) {
  TrainOptions options = SmallOptions(3);
  LocalSteps(options);
  const TrainResult result = Train(options, SmallCorpus());  // throws if replicas differ
  const StepRecord& last_sync = result.steps[26];
  ASSERT_EQ(last_sync.stage, onebitStageCompressed);
  EXPECT_EQ(result.final_sync_bytes, last_sync.bytes_sent);
  options.steps = 27;
  EXPECT_EQ(Train(options, SmallCorpus()).final_sync_bytes, 0U);
}

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

TEST(TrainerTest, OverflowingGradientsAreSkippedByAllRanks) {
  TrainOptions options = SmallOptions(3);
  options.lr = 0;
  const uint64_t untouched = Train(options, SmallCorpus()).parameter_hash;
  options.lr = 1;
  options.gradient_type = onebitFloat16;
  options.loss_scale = 1e30;
  const TrainResult result = Train(options, SmallCorpus());
  EXPECT_EQ(result.skipped_steps, 20U);
  EXPECT_TRUE(std::all_of(result.steps.begin(), result.steps.end(),
                          [](const StepRecord& step) { return step.is_skipped; }));
  EXPECT_EQ(result.parameter_hash, untouched);
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
            fmt::format("rank {}, step {}: the disk is full", failing_rank, failing_step + 1));
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
