// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares 0/1 Adam with recorded trajectories: every rank's values between syncs, and equal bytes
// on all ranks after one.
#include <string>

#include "tests/optim/recorded.h"

namespace onebit::testing {
namespace {

struct Case {
  std::string name;
  onebitScaleRule_t rule = onebitScaleL2;
  double weight_decay = 0;
  onebitVariant_t variant = onebitVariantPaper;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class ZeroOneOracleTest : public ::testing::TestWithParam<Case> {};

char KindOf(const onebitStepResult_t& result) {
  switch (result.stage) {
    case onebitStageDense:
      return 'F';
    case onebitStageCompressed:
      return '1';
    case onebitStageBoth:
      return 'B';
    default:
      return '.';
  }
}

TEST_P(ZeroOneOracleTest, Follows) {
  const Case& c = GetParam();
  const bool is_deepspeed = c.variant == onebitVariantDeepSpeed;
  const nlohmann::json recorded = ReadRecorded("zero_one_adam.json")["trajectories"][c.name];
  const auto kinds = recorded["kinds"].get<std::string>();
  const onebitCompressorConfig_t compressor = PaperCompressor(c.rule);
  Training training;
  training.problem.noise_offset = 27;
  training.calls = kinds.size();
  onebitOptimizerConfig_t& config = training.config;
  config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  if (!is_deepspeed) config.lrWarmupSteps = 1;  // keeps the log quiet
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.variant = c.variant;
  config.beta2 = 0.97;
  config.varianceFloor = 0;
  config.weightDecay = c.weight_decay;
  config.compressor = &compressor;
  config.varFreezeStep = 12;
  config.varUpdateScaler = 2;
  config.localStepScaler = 8;
  config.localStepClipper = 4;
  const std::vector<Record> records = Train(training);

  MaxError error("max_error_of_x");
  for (size_t call = 0; call < kinds.size(); ++call) {
    const std::string where = "call " + std::to_string(call);
    for (size_t rank = 0; rank < records.size(); ++rank) {
      error.ExpectNear(records[rank].x[call + 1], recorded["x"][call][rank],
                       where + ", rank " + std::to_string(rank));
    }
    const onebitStepResult_t& result = records[0].results[call];
    const char letter = KindOf(result);
    if (kinds[call] == 'i') {
      EXPECT_EQ(letter, '.') << where;
    } else {
      EXPECT_EQ(letter, kinds[call] == 'u' ? '1' : kinds[call]) << where;
    }
    if (letter == '.') {
      EXPECT_EQ(result.bytes_sent, 0u) << where;
    } else {
      EXPECT_GT(result.bytes_sent, 0u) << where;
      EXPECT_EQ(records[1].x[call + 1], records[0].x[call + 1]) << where;
    }
  }
  if (!is_deepspeed) {
    for (size_t rank = 0; rank < records.size(); ++rank) {
      error.ExpectNear(records[rank].m, recorded["m_last"][rank], "m at the end");
    }
    error.ExpectNear(records[0].v, recorded["v_last"], "v at the end");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroOneOracleTest,
    ::testing::Values(Case{"l2"}, Case{"l1", onebitScaleL1}, Case{"l2_decay", onebitScaleL2, 0.01},
                      Case{"deepspeed", onebitScaleL2, 0, onebitVariantDeepSpeed},
                      Case{"deepspeed_decay", onebitScaleL2, 0.01, onebitVariantDeepSpeed}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onebit::testing
