// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers saved and loaded by each rank for itself: training continues as if nothing had
// happened.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"

namespace onebit::testing {
namespace {

constexpr uint64_t kCalls = 16;

// A rank's view of a training: before the first call, and after each.
struct Course {
  std::vector<Blob> states;
  std::vector<std::vector<float>> x;
  std::vector<std::vector<uint16_t>> copies;
  std::vector<onebitStepResult_t> results;  // of call i + 1

  void Note(OptimizerRank& optimizer) {
    states.push_back(optimizer.Export());
    x.push_back(optimizer.x());
    copies.push_back(optimizer.copy());
  }
};

std::vector<Course> RunStraight(const OptimizerSubject& subject, int ranks) {
  std::vector<Course> runs(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](onebitComm_t comm, int rank) {
    Course& run = runs[static_cast<size_t>(rank)];
    OptimizerRank optimizer(subject, comm, rank);
    run.Note(optimizer);
    for (uint64_t call = 1; call <= kCalls; ++call) {
      run.results.push_back(optimizer.Step(call));
      run.Note(optimizer);
    }
  });
  return runs;
}

void ExpectEqual(const onebitStepResult_t& a, const onebitStepResult_t& b) {
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(a.bytes_sent, b.bytes_sent);
}

void ExpectResumes(const OptimizerSubject& subject, int ranks) {
  const std::vector<Course> runs = RunStraight(subject, ranks);
  for (uint64_t saved_at = 0; saved_at < kCalls; ++saved_at) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, saved after call " << saved_at);
    RunRanks(ranks, [&](onebitComm_t comm, int rank) {
      const Course& run = runs[static_cast<size_t>(rank)];
      OptimizerRank optimizer(subject, comm, rank);
      optimizer.Spoil();
      optimizer.Import(run.states[saved_at]);
      ASSERT_EQ(optimizer.Export(), run.states[saved_at]);
      EXPECT_EQ(optimizer.x(), run.x[saved_at]);
      if (run.results[saved_at].step > 2) {  // still written by the step before
        EXPECT_EQ(optimizer.copy(), run.copies[saved_at]);
      }
      for (uint64_t call = saved_at + 1; call <= kCalls; ++call) {
        ExpectEqual(optimizer.Step(call), run.results[call - 1]);
        ASSERT_EQ(optimizer.x(), run.x[call]) << "call " << call;
      }
      EXPECT_EQ(optimizer.Export(), run.states[kCalls]) << "m, v, residuals and all";
    });
  }
}

class OptimizerStateTest : public ::testing::TestWithParam<OptimizerSubject> {};

TEST_P(OptimizerStateTest, TrainingContinuesBitForBit) { ExpectResumes(GetParam(), 3); }

TEST_P(OptimizerStateTest, TrainingOfOneRankContinuesBitForBit) { ExpectResumes(GetParam(), 1); }

// An optimizer at another point of its training has masks, floors and scratch memory of that point.
TEST_P(OptimizerStateTest, AnOptimizerCanGoBack) {
  const std::vector<Course> runs = RunStraight(GetParam(), 2);
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    const Course& run = runs[static_cast<size_t>(rank)];
    OptimizerRank optimizer(GetParam(), comm, rank);
    optimizer.StepUntil(101, 100 + kCalls);  // other gradients
    for (const uint64_t saved_at : {9, 2}) {
      optimizer.Import(run.states[saved_at]);
      optimizer.StepUntil(saved_at + 1, kCalls);
      EXPECT_EQ(optimizer.Export(), run.states[kCalls]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Subjects, OptimizerStateTest, ::testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

// The tests above are meaningful only if their trainings have steps of all kinds.
TEST(OptimizerStateSubjectsTest, HaveStepsOfEveryKind) {
  for (const OptimizerSubject& subject : AllOptimizers()) {
    SCOPED_TRACE(subject.name);
    const bool is_zero_one = subject.config.algorithm == onebitAlgorithmZeroOneAdam;
    const bool is_dense_only =
        subject.config.freezeStep == ONEBIT_FREEZE_NEVER || subject.counts.empty();
    RunRanks(2, [&](onebitComm_t comm, int rank) {
      OptimizerRank optimizer(subject, comm, rank);
      optimizer.StepUntil(1, kCalls);
      const onebitOptimizerStats_t stats = StatsOf(optimizer.handle());
      EXPECT_GT(stats.dense_steps, 0u);
      EXPECT_EQ(stats.compressed_steps > 0, !is_dense_only);
      EXPECT_EQ(stats.local_steps > 1, is_zero_one);
      EXPECT_EQ(stats.frozen_at > 0, !is_dense_only);
    });
  }
}

TEST(OptimizerStateCallsTest, WorkWithoutACommunicator) {
  const OptimizerSubject subject = SubjectOf("zero_one", onebitAlgorithmZeroOneAdam);
  CommGroup group(2);
  std::vector<std::unique_ptr<OptimizerRank>> ranks(2);
  Blob before;
  group.Run([&](int rank) {
    auto& mine = ranks[static_cast<size_t>(rank)];
    mine = std::make_unique<OptimizerRank>(subject, group.comm(rank), rank);
    mine->StepUntil(1, 8);
    if (rank == 0) before = mine->Export();
  });
  group.Run([&](int rank) { EXPECT_EQ(group.Destroy(rank), onebitSuccess); });
  EXPECT_EQ(ranks[0]->Export(), before);
  EXPECT_EQ(ranks[0]->TryImport(before), onebitSuccess);
  Blob room(1 << 16);
  size_t bytes = room.size();
  EXPECT_EQ(onebitOptimizerExport(ranks[0]->get(), onebitStateGlobal, room.data(), &bytes),
            onebitDetached);
  EXPECT_EQ(onebitOptimizerSync(ranks[0]->get()), onebitDetached);
}

TEST(OptimizerStateCallsTest, CompanionHeaderDoesTheSame) {
  std::vector<float> x(20, 0.5f);
  RunRanks(1, [&](onebitComm_t comm, int) {
    UniqueOptimizer optimizer;
    Check(onebit::MakeOptimizer(optimizer, comm, x));
    Blob state;
    Check(ExportState(state, optimizer.get(), onebitStateGlobal));
    x[3] = 0;
    Check(ImportState(optimizer.get(), state));
    EXPECT_EQ(x[3], 0.5f);
    EXPECT_EQ(ExportState(state, onebitOptimizer_t{}, onebitStateRank), onebitInvalidArgument);
    EXPECT_FALSE(state.empty());
  });
}

TEST(OptimizerStateCallsTest, ArgumentsAreChecked) {
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    const OptimizerRank optimizer(SubjectOf("adam", onebitAlgorithmOneBitAdam), comm, rank);
    const Blob good = optimizer.Export();
    Blob room = good;
    size_t bytes = room.size();
    EXPECT_EQ(onebitOptimizerExport(nullptr, onebitStateRank, room.data(), &bytes),
              onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerExport(optimizer.get(), onebitStateRank, room.data(), nullptr),
              onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerExport(optimizer.get(), static_cast<onebitStateKind_t>(2), room.data(),
                                    &bytes),
              onebitInvalidArgument);
    --bytes;
    room.assign(room.size(), std::byte{7});
    EXPECT_EQ(onebitOptimizerExport(optimizer.get(), onebitStateRank, room.data(), &bytes),
              onebitInvalidArgument);
    EXPECT_EQ(bytes, good.size());
    EXPECT_EQ(room, Blob(good.size(), std::byte{7}));
    EXPECT_EQ(onebitOptimizerImport(nullptr, good.data(), good.size()), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerImport(optimizer.get(), nullptr, good.size()), onebitInvalidArgument);
    EXPECT_EQ(onebitOptimizerImport(optimizer.get(), good.data(), 0), onebitCorrupt);
  });
}

TEST(OptimizerStateCallsTest, AreRefusedInsideAGroup) {
  RunRanks(1, [&](onebitComm_t comm, int rank) {
    const OptimizerRank optimizer(SubjectOf("adam", onebitAlgorithmOneBitAdam), comm, rank);
    const Blob good = optimizer.Export();
    Blob room = good;
    size_t bytes = room.size();
    Check(onebitGroupStart());
    EXPECT_EQ(onebitOptimizerExport(optimizer.get(), onebitStateRank, room.data(), &bytes),
              onebitInvalidUsage);
    EXPECT_EQ(optimizer.TryImport(good), onebitInvalidUsage);
    Check(onebitGroupEnd());
  });
}

}  // namespace
}  // namespace onebit::testing
