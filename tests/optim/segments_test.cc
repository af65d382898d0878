// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Segments: each with its own settings, dense or compressed.
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

struct Part {
  size_t count;
  uint32_t flags = 0;
  double lr_scale = ONEBIT_UNDEF_REAL;
  double weight_decay = ONEBIT_UNDEF_REAL;
};

std::vector<onebitSegment_t> Table(const std::vector<Part>& parts) {
  std::vector<onebitSegment_t> segments;
  size_t offset = 0;
  for (const Part& part : parts) {
    onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
    segment.offset = offset;
    segment.count = part.count;
    segment.flags = part.flags;
    segment.lrScale = part.lr_scale;
    segment.weightDecay = part.weight_decay;
    segments.push_back(segment);
    offset += part.count;
  }
  return segments;
}

void Use(const std::vector<onebitSegment_t>& segments, Training* training) {
  training->config.segments = segments.data();
  training->config.segmentCount = segments.size();
}

class OneBitAdamSegmentsTest : public ::testing::Test {
 protected:
  OneBitAdamSegmentsTest() {
    training_.config = PaperOptimizer(compressor_, 12);
    training_.config.weightDecay = 0.01;
  }

  // Expects equal bytes in elements [begin, end) of x after every call of both runs.
  static void ExpectSame(const Record& a, const Record& b, size_t begin, size_t end) {
    ASSERT_EQ(a.x.size(), b.x.size());
    for (size_t call = 0; call < a.x.size(); ++call) {
      for (size_t k = begin; k < end; ++k) {
        ASSERT_EQ(a.x[call][k], b.x[call][k]) << "element " << k << " after " << call << " calls";
      }
    }
  }

  const onebitCompressorConfig_t compressor_ = PaperCompressor();
  Training training_;  // 2 ranks, 16 elements, 30 steps
};

TEST_F(OneBitAdamSegmentsTest, EqualSettingsChangeNothing) {
  const Record whole = Train(training_)[0];
  const auto segments = Table({{3}, {0}, {1}, {9}, {3}, {0}});
  Use(segments, &training_);
  const std::vector<Record> cut = Train(training_);
  ExpectReplicasEqual(cut);
  ExpectSame(whole, cut[0], 0, 16);
}

TEST_F(OneBitAdamSegmentsTest, DenseSegmentIsAdamForEver) {
  Training adam = training_;
  adam.config.freezeStep = ONEBIT_FREEZE_NEVER;
  const Record expected = Train(adam)[0];

  const auto segments = Table({{3}, {4, onebitSegmentDense}, {6}, {3, onebitSegmentDense}});
  Use(segments, &training_);
  const std::vector<Record> mixed = Train(training_);
  ExpectReplicasEqual(mixed);
  EXPECT_EQ(mixed[0].stats.compressed_steps, 18u);
  ExpectSame(expected, mixed[0], 3, 7);  // coordinates of the toy problem do not interact
  ExpectSame(expected, mixed[0], 13, 16);
  for (const size_t k : {3, 6, 13, 15}) EXPECT_EQ(mixed[0].v[k], expected.v[k]);
  EXPECT_NE(mixed[0].x.back()[0], expected.x.back()[0]);
}

TEST_F(OneBitAdamSegmentsTest, CompressedSegmentsArePackedTogether) {
  // Elements 8 to 23 alone are the same problem as elements 0 to 15 of another one, because all of
  // its constants repeat. A dense neighbour must not change how they are compressed.
  constexpr size_t kDense = 8;
  const auto segments = Table({{kDense, onebitSegmentDense}, {16}});
  Training wide = training_;
  wide.problem.dimension = kDense + 16;
  Use(segments, &wide);
  const std::vector<Record> packed = Train(wide);
  ExpectReplicasEqual(packed);

  Training alone = training_;
  size_t call_of_rank[2] = {0, 0};
  alone.problem.dimension = 16;
  std::vector<Record> records(2);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x(packed[0].x[0].begin() + kDense, packed[0].x[0].end());
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, alone.config);
    for (size_t& call = call_of_rank[rank]; call < alone.calls; ++call) {
      std::vector<float> whole_x = packed[0].x[call];
      std::copy(x.begin(), x.end(), whole_x.begin() + kDense);
      std::vector<float> gradient = wide.problem.Gradient(whole_x, rank, call + 1);
      Check(onebitOptimizerStep(optimizer.get(), gradient.data() + kDense, onebitFloat32, 0.05, 1,
                                0, nullptr, nullptr));
      const std::vector<float> expected(packed[0].x[call + 1].begin() + kDense,
                                        packed[0].x[call + 1].end());
      ASSERT_EQ(x, expected) << "call " << call;
    }
  });
}

TEST_F(OneBitAdamSegmentsTest, OnlyDenseSegmentsAreAdam) {
  Training adam = training_;
  adam.config.freezeStep = ONEBIT_FREEZE_NEVER;
  const Record expected = Train(adam)[0];
  const auto segments = Table({{10, onebitSegmentDense}, {6, onebitSegmentDense}});
  Use(segments, &training_);
  for (const int64_t freeze_step : {int64_t{12}, int64_t{ONEBIT_FREEZE_AUTOMATIC}}) {
    training_.config.freezeStep = freeze_step;
    const Record record = Train(training_)[0];
    ExpectSame(expected, record, 0, 16);
    EXPECT_EQ(record.stats.stage, onebitStageDense);
  }
}

TEST_F(OneBitAdamSegmentsTest, LearningRateIsScaled) {
  const auto segments = Table({{6, 0, 0.0}, {4, onebitSegmentDense, 0.0}, {6, 0, 1.0}});
  Use(segments, &training_);
  const Record record = Train(training_)[0];
  for (const auto& x : record.x) {
    for (size_t k = 0; k < 10; ++k) ASSERT_EQ(x[k], record.x[0][k]);
  }
  EXPECT_NE(record.x.back()[12], record.x[0][12]);

  // Twice the scale at half the rate gives the same.
  const auto doubled = Table({{16, 0, 2.0}});
  Use(doubled, &training_);
  training_.learning_rate = [](uint64_t) { return 0.0625; };
  const Record scaled = Train(training_)[0];
  Use({}, &training_);
  training_.config.segments = nullptr;
  training_.learning_rate = [](uint64_t) { return 0.125; };
  ExpectSame(scaled, Train(training_)[0], 0, 16);
}

TEST_F(OneBitAdamSegmentsTest, WeightDecayIsPerSegment) {
  Training without = training_;
  without.config.weightDecay = 0;
  without.calls = 12;  // dense: coordinates do not interact
  const Record expected = Train(without)[0];
  const auto segments = Table({{5, 0, ONEBIT_UNDEF_REAL, 0.0}, {11}});
  Use(segments, &training_);
  training_.calls = 12;
  const Record record = Train(training_)[0];
  ExpectSame(expected, record, 0, 5);
  EXPECT_NE(record.x.back()[5], expected.x.back()[5]);
}

TEST_F(OneBitAdamSegmentsTest, NothingToTrainIsFine) {
  training_.problem.dimension = 0;
  training_.max_grad_norm = 1;
  const auto segments = Table({{0}, {0, onebitSegmentDense}});
  Record record = Train(training_)[0];
  EXPECT_EQ(record.stats.step, 30u);
  Use(segments, &training_);
  record = Train(training_)[0];
  EXPECT_EQ(record.stats.step, 30u);
  EXPECT_EQ(record.results.back().skipped, 0);
}

TEST_F(OneBitAdamSegmentsTest, ZeroLearningRateMovesNothing) {
  training_.learning_rate = [](uint64_t) { return 0.0; };
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqual(records);
  for (const auto& x : records[0].x) ASSERT_EQ(x, records[0].x[0]);
  EXPECT_NE(records[0].m, std::vector<float>(16, 0.0f));
}

}  // namespace
}  // namespace onebit::testing
