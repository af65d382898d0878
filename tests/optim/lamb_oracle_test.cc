// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Compares 1-bit LAMB with a recorded trajectory: parameters, moments, and the values it keeps per
// layer.
#include <array>
#include <string>

#include "tests/optim/recorded.h"

namespace onebit::testing {
namespace {

constexpr int64_t kFreezeStep = 15;

class OneBitLambOracleTest : public ::testing::Test {
 protected:
  OneBitLambOracleTest() {
    training_.problem = {.ranks = 4, .dimension = 32, .noise_offset = 26};
    training_.calls = 40;
    training_.learning_rate = [](uint64_t) { return 0.02; };
    training_.segment_count = layers_.size();
    onebitOptimizerConfig_t& config = training_.config;
    config = PaperOptimizer(compressor_, kFreezeStep);
    config.algorithm = onebitAlgorithmOneBitLamb;
    config.eps = 1e-6;
    config.weightDecay = 0.01;
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i] = ONEBIT_SEGMENT_INIT;
    layers_[0].count = 20;
    layers_[1].offset = 20;
    layers_[1].count = 12;
    config.segments = layers_.data();
    config.segmentCount = layers_.size();
  }

  const onebitCompressorConfig_t compressor_ = PaperCompressor();
  std::array<onebitSegment_t, 2> layers_;
  Training training_;
};

TEST_F(OneBitLambOracleTest, Follows) {
  const nlohmann::json recorded = ReadRecorded("one_bit_lamb.json");
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  MaxError error("max_error_of_x");
  for (size_t t = 0; t <= training_.calls; ++t) {
    error.ExpectNear(records[0].x[t], recorded["x"][t], "x at step " + std::to_string(t));
  }
  for (size_t t = 1; t <= training_.calls; ++t) {
    EXPECT_NEAR(training_.problem.Loss(records[0].x[t]), recorded["loss"][t - 1].get<double>(),
                1e-3)
        << t;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const onebitTrustRatio_t& ratio = records[0].ratios[t - 1][layer];
      EXPECT_NEAR(ratio.coefficient, recorded["coeff"][t - 1][layer].get<double>(), kTolerance)
          << "step " << t << ", layer " << layer;
      if (t > kFreezeStep) {
        EXPECT_NEAR(ratio.factor, recorded["factor"][t - 1][layer].get<double>(), kTolerance)
            << "step " << t << ", layer " << layer;
        EXPECT_NEAR(ratio.average, recorded["cavg"][layer].get<double>(), 1e-6);
        EXPECT_NEAR(ratio.momentumScale, recorded["scaling"][layer].get<double>(), 1e-6);
      } else {
        EXPECT_EQ(ratio.factor, 1);
      }
    }
  }
  error.ExpectNear(records[0].m, recorded["m"], "m at the end");
  error.ExpectNear(records[0].v, recorded["v"], "v at the end");
}

}  // namespace
}  // namespace onebit::testing
