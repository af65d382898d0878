// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes that ranks send in the steps of a run, worked out by hand.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.hpp"
#include "perf/train_text/trainer.h"
#include "tests/train/small_run.h"

namespace onebit::train {
namespace {

constexpr size_t kHeaderBytes = 64;
constexpr size_t kScaleBytes = 4;
constexpr size_t kChunkAlignment = 64;

size_t DivideUp(size_t dividend, size_t divisor) { return (dividend + divisor - 1) / divisor; }

/** Returns the elements of each rank's chunk. */
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

/**
 * Returns the bytes that rank 0 sends in one compressed allreduce of a tensor in `segments`
 * segments.
 */
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

class BytesTest : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(BytesTest, CompressedStepsSendExactlyWhatTheFormatSays) {
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  options.steps = 6;
  options.freeze = 2;
  options.scales = onebitScalesFused;
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
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kOneBitAdam, OptimizerKind::kShardedOneBitAdam,
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

TEST_P(BytesTest, AShardedOptimizerSendsSignsOfGradientsAndCodesOfParameters) {
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  options.optimizer = OptimizerKind::kShardedOneBitAdam;
  options.steps = 8;
  options.freeze = 2;
  const TrainResult result = Train(options, SmallCorpus());
  const size_t peers = static_cast<size_t>(options.ranks) - 1;
  const size_t part = DivideUp(result.parameter_count, peers + 1);
  // Both collectives end with a header to each peer. Codes of 4 bits begin at a multiple of 16
  // bytes.
  const size_t signs = PayloadBytes(part, static_cast<size_t>(options.block));
  const size_t codes = 16 * DivideUp(2 * DivideUp(part, 128), 16) + DivideUp(part, 2);
  for (size_t step = 3; step < result.steps.size(); ++step) {
    EXPECT_EQ(result.steps[step].bytes_sent, peers * (4 * kHeaderBytes + signs + codes));
  }
}

TEST_P(BytesTest, AveragesOfGradientsSendWhatTheFormulaSays) {
  constexpr struct {
    onebitCodec_t codec;
    onebitMode_t mode;
    int block;
  } kCodecs[] = {
      {onebitCodecSign, onebitModeEf, 1024},  {onebitCodecSign, onebitModePlain, 64},
      {onebitCodecFp4, onebitModeEf, 128},    {onebitCodecFp4, onebitModePlain, 32},
      {onebitCodecInt8, onebitModePlain, 64}, {onebitCodecUint8mm, onebitModeEf, 256},
      {onebitCodecInt2, onebitModeEf, 4096},  {onebitCodecInt8Stochastic, onebitModePlain, 256}};
  TrainOptions options = SmallOptions(std::get<0>(GetParam()));
  options.shape.hidden.fill(std::get<1>(GetParam()));
  options.optimizer = OptimizerKind::kAdam;
  options.steps = 5;
  for (const auto& [codec, mode, block] : kCodecs) {
    options.codec = codec;
    options.mode = mode;
    options.block = block;
    for (const onebitDataType_t type : {onebitFloat32, onebitFloat16}) {
      options.gradient_type = type;
      const TrainResult result = Train(options, SmallCorpus());
      ASSERT_EQ(result.skipped_steps, 0U);
      ASSERT_TRUE(result.bytes_expected.has_value());
      EXPECT_EQ(*result.bytes_expected, result.bytes_sent_by_rank[0]) << "codec " << codec;
      for (const StepRecord& step : result.steps) {
        EXPECT_EQ(step.stage, onebitStageCompressed);
        EXPECT_EQ(step.bytes_sent, *result.bytes_expected / result.steps.size());
      }
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

INSTANTIATE_TEST_SUITE_P(TrainerBytesTest, BytesTest,
                         testing::Combine(testing::Values(2, 3), testing::Values(9, 200)));

TEST(TrainerBytesTest, AdamSendsFullPrecisionInEveryStep) {
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

}  // namespace
}  // namespace onebit::train
