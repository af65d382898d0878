// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Masked elements, those of the caller and those without variance, and the floor of the
// denominator.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

// Three segments whose bits do not line up with bytes: 3 compressed, 6 dense, 13 compressed.
class OneBitAdamMaskTest : public ::testing::Test {
 protected:
  static constexpr size_t kCount = 22;

  OneBitAdamMaskTest() {
    training_.problem = {.ranks = 3, .dimension = kCount};
    training_.config = PaperOptimizer(compressor_, 12);
    size_t offset = 0;
    for (const size_t count : {3, 6, 13}) {
      onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
      segment.offset = offset;
      segment.count = count;
      if (count == 6) segment.flags = onebitSegmentDense;
      segments_.push_back(segment);
      offset += count;
    }
    training_.config.segments = segments_.data();
    training_.config.segmentCount = segments_.size();
  }

  const onebitCompressorConfig_t compressor_ = PaperCompressor();
  std::vector<onebitSegment_t> segments_;
  Training training_;
};

TEST_F(OneBitAdamMaskTest, ElementsWithoutGradientStayWhereTheyAre) {
  const std::vector<size_t> dead = {1, 4, 9, 10, 17, 21};
  training_.spoil = [&](size_t, int, std::vector<float>& gradient) {
    for (const size_t k : dead) gradient[k] = 0;
  };
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  const Record& record = records[0];
  EXPECT_EQ(record.stats.compressed_steps, 18u);
  for (size_t k = 0; k < kCount; ++k) {
    const bool is_dead = std::find(dead.begin(), dead.end(), k) != dead.end();
    EXPECT_EQ(record.x.back()[k] == record.x[0][k], is_dead) << k;
    EXPECT_EQ(record.m[k] == 0, is_dead) << k;
    EXPECT_TRUE(std::isfinite(record.x.back()[k])) << k;
  }
}

TEST_F(OneBitAdamMaskTest, ElementsThatWakeAfterTheFreezeStayMasked) {
  training_.spoil = [&](size_t call, int, std::vector<float>& gradient) {
    gradient[2] = gradient[4] = call < 12 ? 0.0f : 1.0f;
  };
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  EXPECT_EQ(records[0].x.back()[2], records[0].x[0][2]);
  EXPECT_NE(records[0].x.back()[4], records[0].x[0][4]);  // dense: its variance is updated
}

TEST_F(OneBitAdamMaskTest, WithoutAnyGradientNothingMoves) {
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
  };
  const std::vector<Record> records = Train(training_);
  for (const auto& x : records[0].x) ASSERT_EQ(x, records[0].x[0]);
  EXPECT_EQ(records[0].stats.step, 30u);
}

TEST_F(OneBitAdamMaskTest, MaskedElementsOnlyDecay) {
  const uint8_t first[] = {0b101};          // without element 1
  const uint8_t second[] = {0b111110};      // without element 3
  const uint8_t third[] = {0xff, 0b01111};  // without element 21
  segments_[0].mask = first;
  segments_[1].mask = second;
  segments_[2].mask = third;
  training_.config.weightDecay = 0.125;
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  const Record& record = records[0];
  const std::vector<size_t> masked = {1, 3, 21};
  for (size_t call = 1; call < record.x.size(); ++call) {
    for (const size_t k : masked) {
      const float before = record.x[call - 1][k];
      ASSERT_EQ(record.x[call][k], before - 0.05f * (0.125f * before)) << call << ' ' << k;
    }
  }
  for (size_t k = 0; k < kCount; ++k) {
    const bool is_masked = std::find(masked.begin(), masked.end(), k) != masked.end();
    EXPECT_EQ(record.m[k] == 0, is_masked) << k;
  }
}

// Otherwise they would contribute to the floor of the others, and return with a variance.
TEST_F(OneBitAdamMaskTest, MaskedElementsHaveNoVariance) {
  const uint8_t first[] = {0b101};          // without element 1
  const uint8_t second[] = {0b111110};      // without element 3, which is dense
  const uint8_t third[] = {0xff, 0b01111};  // without element 21
  segments_[0].mask = first;
  segments_[1].mask = second;
  segments_[2].mask = third;
  for (const auto algorithm :
       {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb, onebitAlgorithmZeroOneAdam}) {
    for (const onebitVariant_t variant : {onebitVariantPaper, onebitVariantDeepSpeed}) {
      for (const size_t calls : {6, 30}) {  // while variances are refreshed, and after that
        SCOPED_TRACE(::testing::Message() << algorithm << ' ' << variant << ' ' << calls);
        onebitOptimizerConfig_t& config = training_.config;
        config = ONEBIT_OPTIMIZER_CONFIG_INIT;
        config.algorithm = algorithm;
        config.variant = variant;
        config.segments = segments_.data();
        config.segmentCount = segments_.size();
        config.compressor = &compressor_;
        if (algorithm == onebitAlgorithmZeroOneAdam) {
          config.varFreezeStep = 12;
          config.localStepScaler = 6;
          config.localStepClipper = 4;
        } else {
          config.freezeStep = 12;
        }
        training_.calls = calls;
        const Record record = Train(training_)[0];
        for (size_t k = 0; k < kCount; ++k) {
          EXPECT_EQ(record.v[k] == 0, k == 1 || k == 3 || k == 21) << k;
        }
      }
    }
  }
}

TEST_F(OneBitAdamMaskTest, MaskIsCopied) {
  uint8_t mask[] = {0xff, 0b01111};
  segments_[2].mask = mask;
  const Record expected = Train(training_)[0];
  training_.spoil = [&](size_t, int, std::vector<float>&) { mask[0] = 0; };
  training_.problem.ranks = 1;  // one thread writes the mask
  const Record record = Train(training_)[0];
  EXPECT_NE(record.x.back()[9], record.x[0][9]);
  EXPECT_EQ(record.x.back()[21], expected.x.back()[21]);
}

TEST_F(OneBitAdamMaskTest, CompressedStageIgnoresWhatMaskedElementsHold) {
  const uint8_t mask[] = {0b110};
  segments_[0].mask = mask;
  for (const int ranks : {1, 3}) {
    training_.problem.ranks = ranks;
    training_.spoil = nullptr;
    const Record clean = Train(training_)[0];
    training_.spoil = [=](size_t call, int rank, std::vector<float>& gradient) {
      if (call >= 12 && rank == ranks - 1) gradient[0] = std::numeric_limits<float>::quiet_NaN();
    };
    const Record record = Train(training_)[0];
    EXPECT_EQ(record.stats.skipped, 0u) << ranks << " ranks";
    EXPECT_EQ(record.x, clean.x) << ranks << " ranks";
  }
}

TEST_F(OneBitAdamMaskTest, MaskedElementsAreInNoScale) {
  // Equal gradients on all ranks: the first compressed average is +-a, with a the root mean square
  // of the local momentum over the elements that take part.
  const std::vector<size_t> compressed = {0,  1,  2,  9,  10, 11, 12, 13,
                                          14, 15, 16, 17, 18, 19, 20, 21};
  const std::vector<size_t> dead = {1, 9, 10, 17, 21};
  training_.learning_rate = [](uint64_t) { return 0.0; };
  const auto gradient_of = [](size_t call, size_t k) {
    return static_cast<float>(1 + (k + call) % 4);
  };
  training_.spoil = [&](size_t call, int, std::vector<float>& gradient) {
    for (size_t k = 0; k < kCount; ++k) gradient[k] = gradient_of(call, k);
    for (const size_t k : dead) gradient[k] = 0;
  };
  training_.calls = 12;
  const std::vector<float> m = Train(training_)[0].m;
  training_.calls = 13;
  const std::vector<float> m_after = Train(training_)[0].m;

  double sum = 0;
  for (const size_t k : compressed) {
    if (std::find(dead.begin(), dead.end(), k) != dead.end()) continue;
    const double local = 0.9 * m[k] + 0.1 * gradient_of(12, k);
    sum += local * local;
  }
  const double scale = std::sqrt(sum / static_cast<double>(compressed.size() - dead.size()));
  for (const size_t k : compressed) {
    const bool is_dead = std::find(dead.begin(), dead.end(), k) != dead.end();
    EXPECT_NEAR(m_after[k], is_dead ? 0 : scale, 1e-5) << k;
  }
}

// ------------------------------------------------------------------------------ variance floor

TEST(OneBitAdamFloorTest, HoldsBackElementsWithTinyVariance) {
  // With one rank the compressed average is exact, so only the denominator matters.
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.problem = {.ranks = 1, .dimension = 16};
  training.config = PaperOptimizer(compressor, 5);
  training.calls = 5;
  training.spoil = [](size_t call, int, std::vector<float>& gradient) {
    if (call < 5) gradient[3] *= 1e-4f;
  };
  const Record before = Train(training)[0];
  training.calls = 6;
  for (const double floor : {0.0, 0.01, 0.5}) {
    training.config.varianceFloor = floor;
    const Record record = Train(training)[0];
    double sum = 0;
    for (const float v : before.v) sum += v;
    const double least = floor * std::sqrt(sum / 16);
    size_t raised_count = 0;
    for (size_t k = 0; k < 16; ++k) {
      const double root = std::sqrt(static_cast<double>(before.v[k]));
      raised_count += root < least ? 1 : 0;
      const double step = 0.05 * record.m[k] / (std::max(root, least) + 1e-8);
      EXPECT_NEAR(record.x[6][k], record.x[5][k] - step, 1e-5 * (1 + std::abs(step))) << k;
    }
    EXPECT_EQ(raised_count > 0, floor > 0);
    EXPECT_LT(raised_count, 16u);
  }
}

// With bias correction, both the root and the floor are those of the corrected variance.
TEST(OneBitAdamFloorTest, IsCorrectedAsTheVarianceIs) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.problem = {.ranks = 1, .dimension = 16};
  training.config = PaperOptimizer(compressor, 5);
  training.config.beta1 = 0.9;
  training.config.biasCorrection = 1;
  training.config.varianceFloor = 0.5;
  training.calls = 5;
  training.spoil = [](size_t call, int, std::vector<float>& gradient) {
    if (call < 5) gradient[3] *= 1e-4f;
  };
  const Record before = Train(training)[0];
  training.calls = 6;
  const Record record = Train(training)[0];
  const double of_m = 1 / (1 - std::pow(training.config.beta1, 6));
  const double of_v = 1 / (1 - std::pow(training.config.beta2, 5));  // frozen at step 5
  double sum = 0;
  for (const float v : before.v) sum += v;
  const double least = 0.5 * std::sqrt(of_v * sum / 16);
  ASSERT_LT(std::sqrt(of_v * before.v[3]), least);
  for (size_t k = 0; k < 16; ++k) {
    const double root = std::sqrt(of_v * before.v[k]);
    const double step = 0.05 * of_m * record.m[k] / (std::max(root, least) + 1e-8);
    EXPECT_NEAR(record.x[6][k], record.x[5][k] - step, 1e-5 * (1 + std::abs(step))) << k;
  }
}

TEST(OneBitAdamFloorTest, IsOfTheSegment) {
  // Two segments with gradients of very different size: the small one's floor is its own.
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 8;
  segments[1].offset = 8;
  segments[1].count = 8;
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training;
  training.problem = {.ranks = 1, .dimension = 16};
  training.config = PaperOptimizer(compressor, 5);
  training.config.segments = segments;
  training.config.segmentCount = 2;
  training.calls = 10;
  training.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (size_t k = 0; k < 8; ++k) gradient[k] = 1e-4f * (k + 1);
  };
  const Record without = Train(training)[0];
  training.config.varianceFloor = 0.01;  // a floor for the whole would hold back all of segment 0
  EXPECT_EQ(Train(training)[0].x, without.x);
}

}  // namespace
}  // namespace onebit::testing
