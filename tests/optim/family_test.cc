// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Rules that hold for every optimizer and variant.
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/float_formats.h"
#include "tests/optim/training.h"

namespace onebit::testing {
namespace {

struct Member {
  std::string name;
  onebitAlgorithm_t algorithm;
  onebitVariant_t variant = onebitVariantPaper;
  bool feeds_momentum = false;
};

std::ostream& operator<<(std::ostream& out, const Member& member) { return out << member.name; }

// Freezes after 8 steps; 0/1 Adam then has intervals of 1, 2 and 4.
onebitOptimizerConfig_t ConfigOf(const Member& member) {
  onebitOptimizerConfig_t config = ONEBIT_OPTIMIZER_CONFIG_INIT;
  config.algorithm = member.algorithm;
  config.variant = member.variant;
  config.beta2 = 0.97;
  const bool is_paper = member.variant == onebitVariantPaper;
  if (member.algorithm == onebitAlgorithmZeroOneAdam) {
    config.varFreezeStep = 8;
    config.varUpdateScaler = 2;
    config.localStepScaler = 6;
    config.localStepClipper = 4;
    if (is_paper) config.denseStepFeedsMomentum = member.feeds_momentum ? 1 : 0;
  } else {
    config.freezeStep = 8;
  }
  if (is_paper) config.lrWarmupSteps = 1;  // keeps the log quiet
  return config;
}

class OptimizerFamilyTest : public ::testing::TestWithParam<Member> {
 protected:
  OptimizerFamilyTest() {
    training_.problem = {.ranks = 3, .dimension = 150};
    training_.config = ConfigOf(GetParam());
    training_.calls = 32;
    training_.learning_rate = [](uint64_t) { return 0.02; };
  }

  static bool IsLocal(const Record& record, size_t call) {
    return record.results[call].stage == onebitStageLocal;
  }
  // Replicas must be equal after every call that sent something.
  static void ExpectReplicasEqualAfterSyncs(const std::vector<Record>& records) {
    for (size_t call = 0; call < records[0].results.size(); ++call) {
      if (IsLocal(records[0], call)) continue;
      for (size_t rank = 1; rank < records.size(); ++rank) {
        ASSERT_EQ(records[rank].x[call + 1], records[0].x[call + 1])
            << "rank " << rank << ", call " << call;
      }
    }
    for (const Record& record : records) EXPECT_EQ(record.v, records[0].v);
  }
  static void ExpectFinite(const std::vector<Record>& records) {
    for (const Record& record : records) {
      for (const auto& x : record.x) {
        for (const float value : x) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }

  Training training_;
};

TEST_P(OptimizerFamilyTest, TrainsAndLeavesReplicasEqual) {
  training_.calls = 200;
  training_.learning_rate = [](uint64_t t) {
    return 0.05 * std::exp2(-static_cast<double>(t) / 40);
  };
  const std::vector<Record> records = Train(training_);
  ExpectReplicasEqualAfterSyncs(records);
  const double first = training_.problem.Loss(records[0].x.front());
  const double last = training_.problem.Loss(records[0].x.back());
  const double least = training_.problem.LeastLoss();
  EXPECT_LT(last - least, 0.3 * (first - least));
}

TEST_P(OptimizerFamilyTest, StepsThatAreLocalSendNothing) {
  training_.max_grad_norm = 1;
  const std::vector<Record> records = Train(training_);
  uint64_t local = 0;
  for (const Record& record : records) {
    uint64_t bytes = 0;
    local = 0;
    for (size_t call = 0; call < training_.calls; ++call) {
      const onebitStepResult_t& result = record.results[call];
      local += IsLocal(record, call) ? 1 : 0;
      EXPECT_EQ(result.bytes_sent == 0, IsLocal(record, call)) << call;
      bytes += result.bytes_sent;
    }
    // Counted by the transport, for all calls of the communicator together, with those that compare
    // values.
    EXPECT_GE(record.comm_bytes, bytes);
    EXPECT_LE(record.comm_bytes, bytes + 4096);
    EXPECT_EQ(record.stats.bytes_sent, bytes);
    EXPECT_EQ(record.stats.local_steps, local);
  }
  if (GetParam().algorithm == onebitAlgorithmZeroOneAdam) {
    EXPECT_GT(local, 8u);
  }
}

TEST_P(OptimizerFamilyTest, OneRankTrainsAlone) {
  training_.problem.ranks = 1;
  training_.calls = 120;
  const std::vector<Record> records = Train(training_);
  ExpectFinite(records);
  EXPECT_EQ(records[0].comm_bytes, 0u);
  EXPECT_LT(training_.problem.Loss(records[0].x.back()),
            0.5 * training_.problem.Loss(records[0].x.front()));
}

TEST_P(OptimizerFamilyTest, NoElementsAreFine) {
  training_.problem.dimension = 0;
  for (const Record& record : Train(training_)) {
    EXPECT_EQ(record.stats.step, training_.calls);
    EXPECT_EQ(record.stats.skipped, 0u);
  }
}

TEST_P(OptimizerFamilyTest, EmptySegmentsChangeNothing) {
  std::vector<onebitSegment_t> segments(2, ONEBIT_SEGMENT_INIT);
  segments[0].count = 100;
  segments[1].offset = 100;
  segments[1].count = 50;
  training_.config.segments = segments.data();
  training_.config.segmentCount = segments.size();
  const std::vector<Record> plain = Train(training_);
  onebitSegment_t empty = ONEBIT_SEGMENT_INIT;
  std::vector<onebitSegment_t> more = {empty, segments[0], empty, segments[1], empty};
  more[2].offset = 100;
  more[4].offset = 150;
  more[4].flags = onebitSegmentDense;
  training_.config.segments = more.data();
  training_.config.segmentCount = more.size();
  const std::vector<Record> with_empty = Train(training_);
  for (size_t rank = 0; rank < plain.size(); ++rank) {
    EXPECT_EQ(with_empty[rank].x, plain[rank].x);
    EXPECT_EQ(with_empty[rank].m, plain[rank].m);
    EXPECT_EQ(with_empty[rank].v, plain[rank].v);
  }
}

TEST_P(OptimizerFamilyTest, ZeroGradientsMoveNothing) {
  training_.spoil = [](size_t, int, std::vector<float>& gradient) {
    for (float& value : gradient) value = 0;
  };
  for (const Record& record : Train(training_)) {
    EXPECT_EQ(record.stats.skipped, 0u);
    for (const auto& x : record.x) ASSERT_EQ(x, record.x[0]);
  }
}

TEST_P(OptimizerFamilyTest, ZeroRatesMoveNothingAndSpoilNothing) {
  training_.calls = 80;
  training_.learning_rate = [](uint64_t t) { return t <= 10 ? 0 : 0.02; };
  const std::vector<Record> records = Train(training_);
  ExpectFinite(records);
  for (const Record& record : records) {
    for (size_t call = 0; call <= 10; ++call) ASSERT_EQ(record.x[call], record.x[0]) << call;
    EXPECT_EQ(record.stats.skipped, 0u);
  }
  EXPECT_LT(training_.problem.Loss(records[0].x.back()),
            training_.problem.Loss(records[0].x.front()));
}

TEST_P(OptimizerFamilyTest, BadGradientsAreSkippedOnAllRanksAlike) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    training_.spoil = [bad](size_t call, int rank, std::vector<float>& gradient) {
      if (call % 5 == 2 && rank == 1) gradient[17] = bad;
    };
    const std::vector<Record> records = Train(training_);
    ExpectFinite(records);
    ExpectReplicasEqualAfterSyncs(records);
    uint64_t skipped = 0;
    uint64_t local = 0;
    for (size_t call = 0; call < training_.calls; ++call) {
      local += call % 5 == 2 && IsLocal(records[0], call) ? 1 : 0;
      const bool is_bad = call % 5 == 2 && !IsLocal(records[0], call);
      skipped += is_bad ? 1 : 0;
      for (const Record& record : records) {
        EXPECT_EQ(record.results[call].skipped, is_bad ? 1 : 0) << call;
        EXPECT_EQ(record.results[call].step, call + 1 - skipped);
      }
    }
    EXPECT_EQ(records[0].stats.skipped, skipped);
    EXPECT_GT(skipped, 1u);
    EXPECT_EQ(records[1].stats.local_overflows, local);
    EXPECT_EQ(records[0].stats.local_overflows, 0u);
  }
}

TEST_P(OptimizerFamilyTest, GradientsOfHalfPrecisionDoNearlyTheSame) {
  const std::vector<Record> full = Train(training_);
  for (const onebitDataType_t type : {onebitFloat16, onebitBfloat16}) {
    training_.gradient_type = type;
    training_.loss_scale = 4;
    const std::vector<Record> half = Train(training_);
    ExpectReplicasEqualAfterSyncs(half);
    EXPECT_NEAR(training_.problem.Loss(half[0].x.back()), training_.problem.Loss(full[0].x.back()),
                0.1 * training_.problem.Loss(full[0].x.front()));
  }
}

TEST_P(OptimizerFamilyTest, MaskedElementsStay) {
  std::vector<uint8_t> mask(19, 0xff);
  mask[0] = 0xf6;  // without elements 0 and 3
  onebitSegment_t segment = ONEBIT_SEGMENT_INIT;
  segment.count = 150;
  segment.mask = mask.data();
  training_.config.segments = &segment;
  training_.config.segmentCount = 1;
  const std::vector<Record> records = Train(training_);
  for (const Record& record : records) {
    for (const size_t element : {size_t{0}, size_t{3}}) {
      EXPECT_EQ(record.x.back()[element], record.x.front()[element]);
      EXPECT_EQ(record.m[element], 0);
    }
    EXPECT_NE(record.x.back()[1], record.x.front()[1]);
  }
}

// Dense segments are averaged exactly in every step that sends something.
TEST_P(OptimizerFamilyTest, DenseSegmentsLeaveReplicasEqual) {
  std::vector<onebitSegment_t> segments(3, ONEBIT_SEGMENT_INIT);
  segments[0].count = 40;
  segments[1].offset = 40;
  segments[1].count = 70;
  segments[1].flags = onebitSegmentDense;
  segments[1].weightDecay = 0.01;
  segments[2].offset = 110;
  segments[2].count = 40;
  segments[2].lrScale = 0.5;
  training_.config.segments = segments.data();
  training_.config.segmentCount = segments.size();
  training_.calls = 100;
  for (const onebitDataType_t type : {onebitFloat32, onebitBfloat16}) {
    training_.gradient_type = type;
    const std::vector<Record> records = Train(training_);
    ExpectFinite(records);
    ExpectReplicasEqualAfterSyncs(records);
    EXPECT_LT(training_.problem.Loss(records[0].x.back()),
              0.7 * training_.problem.Loss(records[0].x.front()));
  }
}

TEST_P(OptimizerFamilyTest, TheCopyIsOfTheParameters) {
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    const ToyProblem problem{.ranks = 2, .dimension = 50};
    std::vector<float> x = problem.StartPoint();
    std::vector<uint16_t> copy(x.size());
    onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
    segments[0].count = segments[1].offset = 20;
    segments[1].count = 30;
    onebitOptimizerConfig_t config = ConfigOf(GetParam());
    config.segments = segments;
    config.segmentCount = 2;
    config.parameterCopy = copy.data();
    config.parameterCopyType = onebitBfloat16;
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    bool has_moved = false;
    for (uint64_t call = 0; call < 40; ++call) {
      std::vector<float> gradient = problem.Gradient(x, rank, call + 1);
      if (call % 6 == 5 && rank == 0) gradient[3] = std::numeric_limits<float>::infinity();
      const std::vector<float> before = x;
      Check(onebitOptimizerStep(optimizer.get(), gradient.data(), onebitFloat32, 0.02, 1, 0,
                                nullptr, nullptr));
      has_moved |= before != x;
      for (size_t i = 0; i < x.size() && has_moved; ++i) {
        ASSERT_EQ(copy[i], kernels::reference::Bf16OfFloat(x[i])) << "call " << call;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Family, OptimizerFamilyTest,
    ::testing::Values(
        Member{"OneBitAdam", onebitAlgorithmOneBitAdam},
        Member{"OneBitAdamOfDeepSpeed", onebitAlgorithmOneBitAdam, onebitVariantDeepSpeed},
        Member{"OneBitLamb", onebitAlgorithmOneBitLamb},
        Member{"OneBitLambOfDeepSpeed", onebitAlgorithmOneBitLamb, onebitVariantDeepSpeed},
        Member{"ZeroOneAdam", onebitAlgorithmZeroOneAdam},
        Member{"ZeroOneAdamFed", onebitAlgorithmZeroOneAdam, onebitVariantPaper, true},
        Member{"ZeroOneAdamOfDeepSpeed", onebitAlgorithmZeroOneAdam, onebitVariantDeepSpeed}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace onebit::testing
