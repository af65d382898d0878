// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Parameters and gradients in memory of their own for each segment: the results are those of one
// buffer, to the bit.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/listed_optimizer.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCalls = 14;

// Everything that a rank sees of a training.
struct Trajectory {
  std::vector<std::vector<float>> x;
  std::vector<std::vector<uint16_t>> copies;
  std::vector<onebitStepResult_t> results;
  std::vector<Blob> states;  // after each call
  Blob global;
};

// Returns to dense steps in the middle, and exports the common state at the end.
Trajectory Run(const ListCase& one, onebitComm_t comm, int rank, int ranks, Layout layout) {
  ListedOptimizer optimizer(one, comm, rank, ranks, layout);
  const bool is_zero_one = one.subject.config.algorithm == onebitAlgorithmZeroOneAdam;
  Trajectory seen;
  for (uint64_t call = 1; call <= kCalls; ++call) {
    seen.results.push_back(optimizer.Step(call));
    seen.x.push_back(optimizer.x());
    seen.copies.push_back(optimizer.copy());
    seen.states.push_back(optimizer.Export());
    if (call != 9) continue;
    Check(onebitOptimizerSync(optimizer.get()));
    if (one.subject.config.freezeStep != ONEBIT_FREEZE_NEVER) {
      Check(onebitOptimizerRewarm(optimizer.get(), is_zero_one ? -1 : 3));
    }
  }
  seen.global = optimizer.Export(onebitStateGlobal);
  return seen;
}

std::vector<Trajectory> RunAll(const ListCase& one, int ranks, Layout layout) {
  std::vector<Trajectory> all(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](onebitComm_t comm, int rank) {
    all[static_cast<size_t>(rank)] = Run(one, comm, rank, ranks, layout);
  });
  return all;
}

void ExpectSame(const Trajectory& found, const Trajectory& expected) {
  for (size_t i = 0; i < expected.results.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "call " << i + 1);
    ASSERT_EQ(found.x[i], expected.x[i]);
    ASSERT_EQ(found.copies[i], expected.copies[i]);
    ASSERT_EQ(found.states[i], expected.states[i]);
    EXPECT_EQ(found.results[i].skipped, expected.results[i].skipped);
    EXPECT_EQ(found.results[i].stage, expected.results[i].stage);
    EXPECT_EQ(found.results[i].step, expected.results[i].step);
    EXPECT_EQ(found.results[i].grad_norm, expected.results[i].grad_norm);
  }
  EXPECT_EQ(found.global, expected.global);
}

void ExpectListEqualsBuffer(const ListCase& one, int ranks) {
  SCOPED_TRACE(::testing::Message() << one << ", " << ranks << " ranks");
  const std::vector<Trajectory> expected = RunAll(one, ranks, Layout::kOneBuffer);
  const std::vector<Trajectory> found = RunAll(one, ranks, Layout::kList);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    SCOPED_TRACE(::testing::Message() << "rank " << rank);
    ExpectSame(found[rank], expected[rank]);
  }
}

class OptimizerListTest : public ::testing::TestWithParam<OptimizerSubject> {};

TEST_P(OptimizerListTest, EqualsOneBuffer) {
  ExpectListEqualsBuffer({.subject = GetParam()}, 3);
  ExpectListEqualsBuffer({.subject = GetParam()}, 1);
}

TEST_P(OptimizerListTest, EqualsOneBufferWithGradientsOf16Bits) {
  ExpectListEqualsBuffer({.subject = GetParam(), .gradient_type = onebitFloat16}, 2);
  ExpectListEqualsBuffer({.subject = GetParam(), .gradient_type = onebitBfloat16}, 3);
}

TEST_P(OptimizerListTest, EqualsOneBufferWhereGradientsAreClipped) {
  for (const onebitClipNorm_t norm : {onebitClipMeanSquare, onebitClipAverage}) {
    ExpectListEqualsBuffer({.subject = GetParam(), .max_grad_norm = 2, .clip_norm = norm}, 3);
  }
}

TEST_P(OptimizerListTest, EqualsOneBufferWhereGradientsAreNotFinite) {
  const std::vector<uint64_t> nan_calls = {2, 6, 7, 8, 12, 13};
  ExpectListEqualsBuffer({.subject = GetParam(), .nan_calls = nan_calls}, 2);
  for (const onebitClipNorm_t norm : {onebitClipMeanSquare, onebitClipAverage}) {
    ExpectListEqualsBuffer({.subject = GetParam(),
                            .gradient_type = onebitBfloat16,
                            .max_grad_norm = 3,
                            .clip_norm = norm,
                            .nan_calls = nan_calls},
                           2);
  }
}

// Each goes on from a state of the other.
TEST_P(OptimizerListTest, ExchangesStatesWithOneBuffer) {
  const ListCase one{.subject = GetParam()};
  const std::vector<Trajectory> expected = RunAll(one, 2, Layout::kOneBuffer);
  for (const Layout layout : {Layout::kList, Layout::kOneBuffer}) {
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      const Trajectory& seen = expected[static_cast<size_t>(rank)];
      ListedOptimizer optimizer(one, comm, rank, 2, layout);
      optimizer.Import(seen.states[4]);
      EXPECT_EQ(optimizer.x(), seen.x[4]);
      EXPECT_EQ(optimizer.copy(), seen.copies[4]);
      for (uint64_t call = 6; call <= 9; ++call) {
        optimizer.Step(call);
        ASSERT_EQ(optimizer.x(), seen.x[call - 1]) << "call " << call;
        ASSERT_EQ(optimizer.Export(), seen.states[call - 1]) << "call " << call;
      }
    });
  }
}

// Rank 1 counts as one step behind, so that it takes parameters and moments from rank 0.
TEST_P(OptimizerListTest, MigratesWithItsParameters) {
  const ListCase one{.subject = GetParam()};
  CommGroup group(2);
  std::vector<UniqueComm> made(2);
  std::vector<std::unique_ptr<ListedOptimizer>> ranks(2);
  const std::vector<Outcome> outcomes = group.Call([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    ranks[r] = std::make_unique<ListedOptimizer>(one, group.comm(rank), rank, 2, Layout::kList);
    // Residuals of a compressed step could not be taken from another rank.
    if (ranks[r]->Step(1).stage == onebitStageDense && rank == 1) {
      ranks[r]->Import(ranks[r]->Export());  // restarts its count of commits
      ranks[r]->Spoil();
    }
    onebitComm_t comm = nullptr;
    Check(onebitCommSplit(group.comm(rank), 0, 0, &comm, nullptr));
    made[r].reset(comm);
    int source = -1;
    Check(onebitOptimizerRebind(ranks[r]->get(), comm, &source));
    for (uint64_t call = 2; call <= 9; ++call) ranks[r]->Step(call);
    return onebitOptimizerSync(ranks[r]->get());
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(ranks[0]->x(), ranks[1]->x());
  EXPECT_EQ(ranks[0]->copy(), ranks[1]->copy());
}

std::vector<OptimizerSubject> Subjects() {
  std::vector<OptimizerSubject> subjects;
  for (const OptimizerSubject& subject : AllOptimizers()) {
    if (subject.count() != 0) subjects.push_back(subject);
  }
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerListTest, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

// ------------------------------------------------------------------------ handing over gradients

std::vector<onebitSegment_t> TwoSegments(size_t first, size_t second) {
  std::vector<onebitSegment_t> segments(2, onebitSegment_t(ONEBIT_SEGMENT_INIT));
  segments[0].count = first;
  segments[1].offset = first;
  segments[1].count = second;
  return segments;
}

class AddGradientTest : public ::testing::Test {
 protected:
  AddGradientTest() {
    Check(onebitCommInitAll(&comm_, 1, nullptr));
    onebitOptimizerConfig_t config = DefaultOptimizer();
    config.segments = segments_.data();
    config.segmentCount = segments_.size();
    optimizer_ = MakeOptimizer(comm_, x_, config);
  }
  ~AddGradientTest() override { onebitCommDestroy(comm_); }

  onebitResult_t Add(size_t segment, void* gradient, onebitDataType_t type = onebitFloat32) {
    return onebitOptimizerAddGradient(optimizer_.get(), segment, gradient, type);
  }
  onebitResult_t Step(float* gradients = nullptr) {
    return onebitOptimizerStep(optimizer_.get(), gradients, onebitFloat32, 0.1, 1, 0, nullptr,
                               nullptr);
  }
  static std::string LastError() { return onebitGetLastError(nullptr); }

  const std::vector<onebitSegment_t> segments_ = TwoSegments(4, 12);
  onebitComm_t comm_ = nullptr;
  std::vector<float> x_ = std::vector<float>(16, 1.0f);
  std::vector<float> gradient_ = std::vector<float>(16, 1.0f);
  OptimizerHandle optimizer_;
};

TEST_F(AddGradientTest, AMissingGradientIsNamed) {
  EXPECT_EQ(Step(), onebitInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("segment 0 has none"));
  Check(Add(0, gradient_.data()));
  EXPECT_EQ(Step(), onebitInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("segment 1 has none"));
  Check(Add(1, gradient_.data() + 4));  // the first is still there
  Check(Step());
  EXPECT_EQ(Step(), onebitInvalidUsage) << "a step takes its gradients";
}

TEST_F(AddGradientTest, ASecondGradientIsRefusedUntilTheFirstIsForgotten) {
  Check(Add(1, gradient_.data()));
  EXPECT_EQ(Add(1, gradient_.data()), onebitInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("segment 1 already has a gradient"));
  EXPECT_EQ(Step(gradient_.data()), onebitInvalidUsage);
  EXPECT_THAT(LastError(), HasSubstr("1 of 2 segments"));
  Check(Add(ONEBIT_ALL_SEGMENTS, nullptr));
  Check(Add(1, gradient_.data()));
  Check(Add(ONEBIT_ALL_SEGMENTS, nullptr));
  Check(Step(gradient_.data()));
}

TEST_F(AddGradientTest, ArgumentsAreChecked) {
  EXPECT_EQ(onebitOptimizerAddGradient(nullptr, 0, gradient_.data(), onebitFloat32),
            onebitInvalidArgument);
  EXPECT_EQ(Add(2, gradient_.data()), onebitInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("segment is 2, but there are 2"));
  EXPECT_EQ(Add(ONEBIT_ALL_SEGMENTS, gradient_.data()), onebitInvalidArgument);
  EXPECT_EQ(Add(0, gradient_.data(), onebitInt32), onebitInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("datatype"));
  EXPECT_EQ(Add(0, reinterpret_cast<char*>(gradient_.data()) + 2), onebitInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("aligned"));
  EXPECT_EQ(Step(), onebitInvalidUsage) << "nothing was handed over";
}

// Another rank may have a gradient for the parameters that took no part here.
TEST(AddGradientJobTest, NullStandsForZeros) {
  const std::vector<onebitSegment_t> segments = TwoSegments(40, 60);
  const ToyProblem problem{.ranks = 2, .dimension = 100};
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.segments = segments.data();
  config.segmentCount = segments.size();
  config.freezeStep = 3;
  for (const onebitDataType_t type : {onebitFloat32, onebitBfloat16}) {
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      std::vector<float> x = problem.StartPoint(), expected = x;
      const OptimizerHandle with_null = MakeOptimizer(comm, x, config);
      const OptimizerHandle with_zeros = MakeOptimizer(comm, expected, config);
      for (uint64_t step = 1; step <= 8; ++step) {
        const bool is_null = rank == 1 && step % 3 != 0;
        std::vector<float> gradient = problem.Gradient(x, rank, step);
        if (is_null) std::fill(gradient.begin(), gradient.begin() + 40, 0.0f);
        std::vector<std::byte> zeros = Encode(gradient, type, 1), given = zeros;
        const size_t element_bytes = given.size() / 100;
        Check(onebitOptimizerStep(with_zeros.get(), zeros.data(), type, 0.01, 1, 0, nullptr,
                                  nullptr));
        Check(
            onebitOptimizerAddGradient(with_null.get(), 0, is_null ? nullptr : given.data(), type));
        Check(onebitOptimizerAddGradient(with_null.get(), 1, given.data() + 40 * element_bytes,
                                         type));
        Check(onebitOptimizerStep(with_null.get(), nullptr, type, 0.01, 1, 0, nullptr, nullptr));
        ASSERT_EQ(x, expected) << "step " << step;
      }
    });
  }
}

// Rounding to bf16 changes nothing here, so the same values in fp32 must give the same results.
TEST(AddGradientJobTest, SegmentsMayDifferInType) {
  for (const onebitAlgorithm_t algorithm :
       {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb, onebitAlgorithmZeroOneAdam}) {
    std::vector<onebitSegment_t> segments = TwoSegments(40, 60);
    segments[0].flags = onebitSegmentDense;
    onebitOptimizerConfig_t config = SubjectOf("", algorithm).config;
    config.segments = segments.data();
    config.segmentCount = segments.size();
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      std::vector<float> x(100, 1.0f), expected = x;
      const OptimizerHandle mixed = MakeOptimizer(comm, x, config);
      const OptimizerHandle same = MakeOptimizer(comm, expected, config);
      for (uint64_t step = 1; step <= 10; ++step) {
        // Sums of two such values are exact in bf16.
        std::vector<float> gradient(100);
        for (size_t i = 0; i < gradient.size(); ++i) {
          gradient[i] = static_cast<float>((i + step + 3 * static_cast<size_t>(rank)) % 7) - 3;
        }
        std::vector<std::byte> narrow =
            Encode({gradient.begin() + 40, gradient.end()}, onebitBfloat16, 1);
        std::vector<float> wide(gradient.begin(), gradient.begin() + 40);
        Check(onebitOptimizerStep(same.get(), gradient.data(), onebitFloat32, 0.01, 1, 3, nullptr,
                                  nullptr));
        Check(onebitOptimizerAddGradient(mixed.get(), 1, narrow.data(), onebitBfloat16));
        Check(onebitOptimizerAddGradient(mixed.get(), 0, wide.data(), onebitFloat32));
        Check(
            onebitOptimizerStep(mixed.get(), nullptr, onebitFloat32, 0.01, 1, 3, nullptr, nullptr));
        ASSERT_EQ(x, expected) << "step " << step;
      }
    });
  }
}

// ---------------------------------------------------------------------------- segments of a list

class SegmentParametersTest : public ::testing::Test {
 protected:
  SegmentParametersTest() { Check(onebitCommInitAll(&comm_, 1, nullptr)); }
  ~SegmentParametersTest() override { onebitCommDestroy(comm_); }

  onebitResult_t Create(const void* segments, size_t segment_count, float* parameters,
                        onebitOptimizerConfig_t config = DefaultOptimizer()) {
    config.segments = static_cast<const onebitSegment_t*>(segments);
    config.segmentCount = segment_count;
    onebitOptimizer_t optimizer = nullptr;
    const onebitResult_t result = onebitOptimizerCreate(&optimizer, comm_, 16, parameters, &config);
    optimizer_.reset(optimizer);
    return result;
  }
  void ExpectInvalid(onebitResult_t result, const std::string& text) {
    EXPECT_EQ(result, onebitInvalidArgument) << text;
    EXPECT_THAT(std::string(onebitGetLastError(nullptr)), HasSubstr(text));
  }

  std::vector<onebitSegment_t> segments_ = TwoSegments(4, 12);
  onebitComm_t comm_ = nullptr;
  std::vector<float> x_ = std::vector<float>(16, 1.0f), own_ = x_;
  UniqueOptimizer optimizer_;
};

TEST_F(SegmentParametersTest, EverySegmentNeedsParameters) {
  segments_[0].parameters = own_.data();
  ExpectInvalid(Create(segments_.data(), 2, nullptr), "segments[1].parameters");
  segments_[1].parameters = own_.data() + 4;
  Check(Create(segments_.data(), 2, nullptr));
}

TEST_F(SegmentParametersTest, SomeMayBePartOfOneBuffer) {
  segments_[1].parameters = own_.data();
  Check(Create(segments_.data(), 2, x_.data()));
  std::vector<float> gradient(16, 1.0f);
  Check(onebitOptimizerStep(optimizer_.get(), gradient.data(), onebitFloat32, 0.1, 1, 0, nullptr,
                            nullptr));
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(x_[i] != 1, i < 4) << i;
    EXPECT_EQ(own_[i] != 1, i < 12) << i;
  }
}

TEST_F(SegmentParametersTest, AddressesAreChecked) {
  segments_[1].parameters = reinterpret_cast<float*>(reinterpret_cast<char*>(own_.data()) + 1);
  ExpectInvalid(Create(segments_.data(), 2, x_.data()), "segments[1].parameters is not aligned");
  segments_[1].parameters = nullptr;
  segments_[1].parameterCopy = own_.data();
  ExpectInvalid(Create(segments_.data(), 2, x_.data()), "parameterCopyType");
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.parameterCopyType = onebitFloat32;
  ExpectInvalid(Create(segments_.data(), 2, x_.data(), config), "parameterCopyType");
  config.parameterCopyType = onebitFloat16;
  Check(Create(segments_.data(), 2, x_.data(), config));
}

// A caller that was compiled before segments had parameters.
TEST_F(SegmentParametersTest, TheFormerSizeIsAccepted) {
  constexpr size_t kFormerSize = offsetof(onebitSegment_t, parameters);
  std::vector<std::byte> table(2 * kFormerSize);
  for (size_t i = 0; i < 2; ++i) {
    segments_[i].size = kFormerSize;
    std::memcpy(table.data() + i * kFormerSize, &segments_[i], kFormerSize);
  }
  Check(Create(table.data(), 2, x_.data()));
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.size = offsetof(onebitOptimizerConfig_t, clipNorm);
  config.clipNorm = 77;  // not read
  Check(Create(table.data(), 2, x_.data(), config));
  constexpr size_t kOtherSize = sizeof(onebitSegment_t);
  std::memcpy(table.data() + kFormerSize, &kOtherSize, sizeof(kOtherSize));
  ExpectInvalid(Create(table.data(), 2, x_.data()), "but that of segments[0] is");
  segments_[0].size = 8;
  ExpectInvalid(Create(segments_.data(), 2, x_.data()), "segments[0].size is 8");
}

}  // namespace
}  // namespace onebit::testing
