// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 gradients and parameters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

struct Case {
  onebitDataType_t type;
  bool has_dense_segment;
};

class OneBitAdamPrecisionTest : public ::testing::TestWithParam<Case> {
 protected:
  OneBitAdamPrecisionTest() {
    training_.config = PaperOptimizer(compressor_, 12);
    segments_[0].count = 7;
    segments_[0].flags = GetParam().has_dense_segment ? onebitSegmentDense : 0;
    segments_[1].offset = 7;
    segments_[1].count = 9;
    training_.config.segments = segments_;
    training_.config.segmentCount = 2;
  }

  const onebitCompressorConfig_t compressor_ = PaperCompressor();
  onebitSegment_t segments_[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  Training training_;
};

TEST_P(OneBitAdamPrecisionTest, GradientsThatFitGiveTheSameBytes) {
  // Multiples of 1/8 below 4: these, and the mean of two, are exact in bf16 and, scaled, in fp16.
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (float& g : gradient) g = std::clamp(std::round(g * 8) / 8, -4.0f, 4.0f);
  };
  const std::vector<Record> expected = Train(training_);
  training_.gradient_type = GetParam().type;
  training_.loss_scale = 64;
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  EXPECT_EQ(records[0].x, expected[0].x);
  EXPECT_EQ(records[0].m, expected[0].m);
  EXPECT_EQ(records[0].v, expected[0].v);
}

TEST_P(OneBitAdamPrecisionTest, RoundedGradientsStayClose) {
  const std::vector<Record> expected = Train(training_);
  training_.gradient_type = GetParam().type;
  training_.calls = 12;
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  EXPECT_LT(MaxDifference(records[0].x[12], expected[0].x[12]), 2e-2);
}

TEST_P(OneBitAdamPrecisionTest, ClipsAfterUnscaling) {
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (float& g : gradient) g = std::clamp(std::round(g * 8) / 8, -4.0f, 4.0f);
  };
  training_.max_grad_norm = 2;
  const Record expected = Train(training_)[0];
  training_.gradient_type = GetParam().type;
  training_.loss_scale = 64;
  const Record record = Train(training_)[0];
  EXPECT_EQ(record.x, expected.x);
  EXPECT_EQ(record.results[3].grad_norm, expected.results[3].grad_norm);
}

TEST_P(OneBitAdamPrecisionTest, CopyFollowsParameters) {
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = training_.problem.StartPoint();
    std::vector<uint16_t> copy(x.size(), 0xabcd);
    onebitOptimizerConfig_t config = training_.config;
    config.parameterCopy = copy.data();
    config.parameterCopyType = GetParam().type;
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    EXPECT_EQ(copy[0], 0xabcd);
    for (uint64_t call = 0; call < 20; ++call) {
      std::vector<float> gradient = training_.problem.Gradient(x, rank, call + 1);
      const bool is_bad = call == 5 || call == 15;
      if (is_bad) gradient[8] = NAN;
      const std::vector<uint16_t> copy_before = copy;
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.05, 1, 0,
                                nullptr, nullptr));
      if (is_bad) {
        ASSERT_EQ(copy, copy_before);
        continue;
      }
      const std::vector<std::byte> rounded = Encode(x, GetParam().type, 1);
      ASSERT_EQ(std::memcmp(copy.data(), rounded.data(), rounded.size()), 0) << call;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, OneBitAdamPrecisionTest,
                         ::testing::Values(Case{onebitFloat16, false}, Case{onebitBfloat16, false},
                                           Case{onebitFloat16, true}, Case{onebitBfloat16, true}),
                         [](const auto& info) {
                           return std::string(info.param.type == onebitFloat16 ? "Fp16" : "Bf16") +
                                  (info.param.has_dense_segment ? "WithDenseSegment" : "");
                         });

}  // namespace
}  // namespace onebit::testing
