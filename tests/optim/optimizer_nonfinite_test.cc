// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Bad gradients are skipped on every rank, and leave no trace.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Calls with a bad gradient: two in the dense stage, the first compressed one, two in a row later.
bool IsBadCall(size_t call) {
  return call == 0 || call == 7 || call == 14 || call == 20 || call == 21;
}
constexpr size_t kBadCalls = 5;
constexpr size_t kSteps = 30;

struct Bad {
  int rank;
  size_t element;
  float value;
};

void ExpectAsIfNeverSeen(Training training, const Bad& bad) {
  SCOPED_TRACE("rank " + std::to_string(bad.rank) + ", element " + std::to_string(bad.element) +
               ", value " + std::to_string(bad.value));
  training.calls = kSteps;
  const std::vector<Record> clean = Train(training);
  training.calls = kSteps + kBadCalls;
  training.spoil = [&](size_t call, int rank, std::vector<float>& gradient) {
    if (IsBadCall(call) && rank == bad.rank) gradient[bad.element] = bad.value;
  };
  const std::vector<Record> spoilt = Train(training);
  ExpectReplicasEqual(spoilt);

  for (size_t rank = 0; rank < spoilt.size(); ++rank) {
    const Record& record = spoilt[rank];
    size_t steps = 0;  // good steps so far
    for (size_t call = 0; call < training.calls; ++call) {
      ASSERT_EQ(record.results[call].skipped, IsBadCall(call) ? 1 : 0)
          << "rank " << rank << ", call " << call;
      if (!IsBadCall(call)) ++steps;
      ASSERT_EQ(record.results[call].step, steps);
      ASSERT_EQ(record.x[call + 1], clean[rank].x[steps]) << "rank " << rank << ", call " << call;
    }
    EXPECT_EQ(record.m, clean[rank].m);
    EXPECT_EQ(record.v, clean[rank].v);
    EXPECT_EQ(record.stats.step, clean[rank].stats.step);
    EXPECT_EQ(record.stats.compressed_steps, clean[rank].stats.compressed_steps);
    EXPECT_EQ(record.stats.frozen_at, clean[rank].stats.frozen_at);
    EXPECT_EQ(record.stats.skipped, kBadCalls);
    EXPECT_EQ(clean[rank].stats.skipped, 0u);
  }
}

Training ThreeRanks(const onebitCompressorConfig_t& compressor) {
  Training training;
  training.problem = {.ranks = 3, .dimension = 50};
  training.config = PaperOptimizer(compressor, 12);  // the third bad call is the first compressed
  training.config.weightDecay = 0.01;
  return training;
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTrace) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  const Training training = ThreeRanks(compressor);
  for (const float value : {kNan, kInf, -kInf}) {
    ExpectAsIfNeverSeen(training, {.rank = 0, .element = 0, .value = value});
    ExpectAsIfNeverSeen(training, {.rank = 1, .element = 49, .value = value});
    ExpectAsIfNeverSeen(training, {.rank = 2, .element = 17, .value = value});
  }
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTraceWithClipping) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.max_grad_norm = 3;
  ExpectAsIfNeverSeen(training, {.rank = 0, .element = 0, .value = kNan});
  ExpectAsIfNeverSeen(training, {.rank = 2, .element = 20, .value = -kInf});
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTraceWithBlocksAndDefaults) {
  Training training;
  training.problem = {.ranks = 3, .dimension = 50};
  training.config.freezeStep = 12;
  ExpectAsIfNeverSeen(training, {.rank = 2, .element = 49, .value = kInf});
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTraceInDenseSegments) {
  onebitSegment_t segments[3] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 21;
  segments[1].offset = 21;
  segments[1].count = 9;
  segments[1].flags = onebitSegmentDense;
  segments[2].offset = 30;
  segments[2].count = 20;
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.config.segments = segments;
  training.config.segmentCount = 3;
  for (const double max_grad_norm : {0.0, 3.0}) {
    training.max_grad_norm = max_grad_norm;
    for (const size_t element : {0, 21, 29, 30}) {  // both kinds of segment
      ExpectAsIfNeverSeen(training, {.rank = 1, .element = element, .value = kNan});
    }
  }
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTraceInHalfPrecision) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.loss_scale = 128;
  training.gradient_type = onebitFloat16;
  ExpectAsIfNeverSeen(training, {.rank = 1, .element = 33, .value = kNan});
  ExpectAsIfNeverSeen(training, {.rank = 1, .element = 33, .value = 1000});  // inf in fp16
  training.gradient_type = onebitBfloat16;
  ExpectAsIfNeverSeen(training, {.rank = 0, .element = 33, .value = kInf});
}

TEST(OneBitAdamNonfiniteTest, SkipsWithoutTraceOnOneRank) {
  const onebitCompressorConfig_t compressor = PaperCompressor();
  Training training = ThreeRanks(compressor);
  training.problem.ranks = 1;
  ExpectAsIfNeverSeen(training, {.rank = 0, .element = 33, .value = kNan});
  ExpectAsIfNeverSeen(training, {.rank = 0, .element = 33, .value = kInf});
}

TEST(OneBitAdamNonfiniteTest, SkipsGradientsWhoseSquareOverflows) {
  Training training;
  training.config.freezeStep = ONEBIT_FREEZE_NEVER;
  training.calls = 2;
  training.spoil = [](size_t call, int, std::vector<float>& gradient) {
    if (call == 0) gradient[5] = 1e20f;
  };
  for (const double max_grad_norm : {0.0, 1.0}) {
    training.max_grad_norm = max_grad_norm;
    const Record record = Train(training)[0];
    EXPECT_EQ(record.results[0].skipped, 1);
    EXPECT_EQ(record.x[1], record.x[0]);
    EXPECT_EQ(record.results[1].skipped, 0);
  }
}

TEST(OneBitAdamNonfiniteTest, ReportsTheNormThatWasNotFinite) {
  Training training;
  training.calls = 1;
  training.max_grad_norm = 1;
  training.spoil = [](size_t, int rank, std::vector<float>& gradient) {
    if (rank == 1) gradient[2] = kInf;
  };
  for (const Record& record : Train(training)) {
    EXPECT_EQ(record.results[0].skipped, 1);
    EXPECT_EQ(record.results[0].grad_norm, kInf);
  }
}

}  // namespace
}  // namespace onebit::testing
