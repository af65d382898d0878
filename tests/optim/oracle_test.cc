// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares 1-bit Adam with trajectories recorded from an independent float64 reference.
#include <sstream>
#include <string>

#include "tests/optim/recorded.h"

namespace onebit::testing {
namespace {

constexpr int64_t kFreezeStep = 12;

const nlohmann::json& Oracle() {
  static const nlohmann::json oracle = ReadRecorded("one_bit_adam.json");
  return oracle;
}

void RecordMaxError(const char* name, double max_error) {
  std::ostringstream text;
  text << max_error;
  ::testing::Test::RecordProperty(name, text.str());
}

// Trains with `compressor` and compares every x_t with the named trajectory.
std::vector<Record> ExpectTrajectory(const std::string& name,
                                     const onebitCompressorConfig_t& compressor,
                                     double weight_decay = 0) {
  Training training;
  training.config = PaperOptimizer(compressor, kFreezeStep);
  training.config.weightDecay = weight_decay;
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);

  const nlohmann::json& trajectory = Oracle()["trajectories"][name];
  double max_error = 0;
  for (size_t t = 0; t <= training.calls; ++t) {
    const auto expected = trajectory["x"][t].get<std::vector<double>>();
    const double error = MaxDifference(records[0].x[t], expected);
    EXPECT_LE(error, kTolerance) << name << " at step " << t;
    if (!(error <= max_error)) max_error = error;
    EXPECT_NEAR(training.problem.Loss(records[0].x[t]), trajectory["loss"][t].get<double>(), 1e-3)
        << name << " at step " << t;
  }
  RecordMaxError("max_error_of_x", max_error);
  return records;
}

void ExpectMoments(const std::string& name, const Record& record) {
  const nlohmann::json& trajectory = Oracle()["trajectories"][name];
  EXPECT_LE(MaxDifference(record.m, trajectory["m"].get<std::vector<double>>()), kTolerance);
  EXPECT_LE(MaxDifference(record.v, trajectory["v"].get<std::vector<double>>()), kTolerance);
}

TEST(OneBitAdamOracleTest, FollowsL2) {
  const auto records = ExpectTrajectory("l2", PaperCompressor(onebitScaleL2));
  ExpectMoments("l2", records[0]);
  for (size_t t = 1; t <= 30; ++t) {
    const onebitStepResult_t& result = records[0].results[t - 1];
    EXPECT_EQ(result.stage, t <= 12 ? onebitStageDense : onebitStageCompressed) << t;
    EXPECT_EQ(result.step, t);
    EXPECT_EQ(result.skipped, 0);
  }
  EXPECT_EQ(records[0].stats.frozen_at, 12u);
  EXPECT_EQ(records[0].stats.compressed_steps, 18u);
}

TEST(OneBitAdamOracleTest, FollowsL1) {
  const auto records = ExpectTrajectory("l1", PaperCompressor(onebitScaleL1));
  ExpectMoments("l1", records[0]);
}

TEST(OneBitAdamOracleTest, FollowsL2WithWeightDecay) {
  const auto records = ExpectTrajectory("l2_decay", PaperCompressor(onebitScaleL2), 0.01);
  ExpectMoments("l2_decay", records[0]);
}

TEST(OneBitAdamOracleTest, FollowsPlainSign) {
  ExpectTrajectory("l2_sign", PaperCompressor(onebitScaleL2, onebitModePlain));
}

TEST(OneBitAdamOracleTest, NeverFrozenIsAdam) {
  Training training;
  const onebitCompressorConfig_t compressor = PaperCompressor();
  training.config = PaperOptimizer(compressor, ONEBIT_FREEZE_NEVER);
  const std::vector<Record> records = Train(training);
  ExpectReplicasEqual(records);
  const auto loss = Oracle()["adam_loss"].get<std::vector<double>>();
  std::vector<double> losses;
  for (const auto& x : records[0].x) losses.push_back(training.problem.Loss(x));
  const double max_error = MaxDifference(losses, loss);
  EXPECT_LE(max_error, kTolerance);
  RecordMaxError("max_error_of_loss", max_error);
  EXPECT_EQ(records[0].stats.frozen_at, 0u);
  EXPECT_EQ(records[0].stats.stage, onebitStageDense);
}

}  // namespace
}  // namespace onebit::testing
