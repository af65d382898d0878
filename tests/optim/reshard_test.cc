// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// States of all ranks of an optimizer, loaded by another number of ranks.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/state_blob.h"
#include "tests/optim/optimizer_job.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;

// The state after this many calls, which is the same on all ranks.
Blob GlobalStateAfter(const OptimizerSubject& subject, uint64_t calls) {
  std::vector<Blob> states(kRanks);
  RunRanks(kRanks, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.StepUntil(1, calls);
    states[static_cast<size_t>(rank)] = optimizer.Export(onebitStateGlobal);
  });
  for (const Blob& state : states) EXPECT_EQ(state, states[0]);
  return states[0];
}

Blob SectionOf(const Blob& blob, SectionTag tag) {
  const auto section = StateReader::Open(blob).value().section(tag);
  return section ? Blob(section->begin(), section->end()) : Blob();
}

std::vector<float> FloatsOf(const Blob& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

double SumOfMagnitudes(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += std::abs(value);
  return sum;
}

// Expects everything unchanged. The mean of residuals is computed again, from equal ones.
void ExpectConserved(const Blob& before, const Blob& after) {
  EXPECT_EQ(SectionOf(after, SectionTag::kValues), SectionOf(before, SectionTag::kValues));
  EXPECT_EQ(SectionOf(after, SectionTag::kElements), SectionOf(before, SectionTag::kElements));
  const Blob inner_before = SectionOf(before, SectionTag::kCompressor);
  const Blob inner_after = SectionOf(after, SectionTag::kCompressor);
  ASSERT_EQ(inner_after.size(), inner_before.size());
  if (inner_before.empty()) return;
  EXPECT_EQ(SectionOf(inner_after, SectionTag::kServer),
            SectionOf(inner_before, SectionTag::kServer));
  const auto worker_before = FloatsOf(SectionOf(inner_before, SectionTag::kWorker));
  const auto worker_after = FloatsOf(SectionOf(inner_after, SectionTag::kWorker));
  for (size_t i = 0; i < worker_before.size(); ++i) {
    EXPECT_NEAR(worker_after[i], worker_before[i], 1e-6 * std::abs(worker_before[i]));
  }
}

class OptimizerReshardTest : public ::testing::TestWithParam<OptimizerSubject> {};

TEST_P(OptimizerReshardTest, NothingIsLostOnAnyNumberOfRanks) {
  for (const uint64_t calls : {2, 5, 10}) {
    const Blob state = GlobalStateAfter(GetParam(), calls);
    for (const int ranks : {1, 3, 4, 6}) {
      SCOPED_TRACE(::testing::Message() << "after " << calls << " calls, to " << ranks << " ranks");
      RunRanks(ranks, [&](onebitComm_t comm, int rank) {
        OptimizerRank optimizer(GetParam(), comm, rank);
        optimizer.Spoil();
        optimizer.Import(state);
        ExpectConserved(state, optimizer.Export(onebitStateGlobal));
      });
    }
  }
}

TEST_P(OptimizerReshardTest, TrainingArrivesOnAnyNumberOfRanks) {
  constexpr uint64_t kLastCall = 500;
  const Blob state = GlobalStateAfter(GetParam(), 9);
  for (const int ranks : {1, 3, 6}) {
    const ToyProblem problem = {.ranks = ranks, .dimension = GetParam().count(), .noise_offset = 5};
    RunRanks(ranks, [&](onebitComm_t comm, int rank) {
      OptimizerRank optimizer(GetParam(), comm, rank);
      optimizer.Import(state);
      for (uint64_t call = 10; call <= kLastCall; ++call) {
        const double rate = 0.05 * std::exp2(-static_cast<double>(call) / 60);
        Check(optimizer.TryStep(call, rate, nullptr));
      }
      Check(onebitOptimizerSync(optimizer.get()));
      if (rank == 0) {
        const double excess = problem.Loss(optimizer.x()) - problem.LeastLoss();
        EXPECT_LT(excess, 0.02 * (problem.Loss(problem.StartPoint()) - problem.LeastLoss()) + 1e-9)
            << ranks << " ranks";
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Subjects, OptimizerReshardTest, ::testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

// The values that the test of conservation checks are not zero, and the interval it interrupts is
// open.
TEST(OptimizerReshardSubjectTest, HasResidualsAndAnOpenInterval) {
  const OptimizerSubject subject = SubjectOf("zero_one", onebitAlgorithmZeroOneAdam);
  const Blob state = GlobalStateAfter(subject, 10);
  const Blob inner = SectionOf(state, SectionTag::kCompressor);
  EXPECT_GT(SumOfMagnitudes(FloatsOf(SectionOf(inner, SectionTag::kWorker))), 0);
  EXPECT_GT(SumOfMagnitudes(FloatsOf(SectionOf(inner, SectionTag::kServer))), 0);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.StepUntil(1, 9);
    EXPECT_EQ(optimizer.Step(10).stage, onebitStageLocal);
  });
}

TEST(OptimizerReshardSubjectTest, CompressorMayHaveOtherSettings) {
  OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  const Blob state = GlobalStateAfter(subject, 8);
  onebitCompressorConfig_t compressor = ONEBIT_COMPRESSOR_CONFIG_INIT;
  compressor.block = 64;
  compressor.chunkAlignment = 8;
  subject.config.compressor = &compressor;
  RunRanks(3, [&](onebitComm_t comm, int rank) {
    OptimizerRank optimizer(subject, comm, rank);
    optimizer.Import(state);
    ExpectConserved(state, optimizer.Export(onebitStateGlobal));
  });
}

// A single state for all would be wrong for some of them.
TEST(OptimizerReshardRefusalTest, RanksThatDifferAreToldSo) {
  for (const int64_t freeze_step : {int64_t{4}, ONEBIT_FREEZE_NEVER}) {
    OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
    subject.config.freezeStep = freeze_step;
    CommGroup group(3);
    std::vector<std::unique_ptr<OptimizerRank>> ranks(3);
    Blob earlier;
    group.Run([&](int rank) {
      auto& mine = ranks[static_cast<size_t>(rank)];
      mine = std::make_unique<OptimizerRank>(subject, group.comm(rank), rank);
      mine->StepUntil(1, 2);
      if (rank == 1) earlier = mine->Export();
      mine->StepUntil(3, 3);
    });
    const auto expect_mismatch = [&](const char* text) {
      for (const Outcome& outcome : group.Call([&](int rank) {
             Blob room(1 << 16);
             size_t bytes = room.size();
             return onebitOptimizerExport(ranks[static_cast<size_t>(rank)]->get(),
                                          onebitStateGlobal, room.data(), &bytes);
           })) {
        EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
        EXPECT_THAT(outcome.text, HasSubstr(text));
      }
    };
    ranks[2]->x()[4] += 1;
    expect_mismatch("rank 2 are at the same step");
    ranks[2]->x()[4] -= 1;
    ranks[1]->Import(earlier);
    expect_mismatch("rank 1 2 and 0");
  }
}

}  // namespace
}  // namespace onebit::testing
