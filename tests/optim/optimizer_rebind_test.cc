// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// An optimizer migrates to another communicator after a step that only some ranks made: all ranks
// continue from the same state, and training ends as it would have without the fault.
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/optimizer_job.h"
#include "tests/optim/training.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 3;
constexpr uint64_t kSteps = 12;
constexpr int64_t kFreezeStep = 6;

// One rank of a training that survives the loss of its communicator.
struct Trainer {
  std::vector<float> x;
  std::vector<uint16_t> copy;
  OptimizerHandle optimizer;
  UniqueComm comm;  // the new one, after the loss
  int source = -1;
};

onebitResult_t Step(const ToyProblem& problem, Trainer& trainer, int rank) {
  const uint64_t step = StatsOf(trainer.optimizer).step + 1;
  std::vector<float> gradient = problem.Gradient(trainer.x, rank, step);
  return onebitOptimizerStep(trainer.optimizer.get(), gradient.data(), onebitFloat32, 0.05, 1, 1.0,
                             nullptr, nullptr);
}

onebitResult_t GoOn(Trainer& trainer, onebitComm_t failed, const std::vector<int>& excluded) {
  onebitComm_t comm = nullptr;
  const onebitResult_t result =
      onebitCommShrink(failed, excluded.data(), static_cast<int>(excluded.size()), &comm, nullptr,
                       ONEBIT_SHRINK_DEFAULT);
  trainer.comm.reset(comm);
  if (result != onebitSuccess) return result;
  return onebitOptimizerRebind(trainer.optimizer.get(), comm, &trainer.source);
}

class OptimizerRebindTest : public ::testing::Test {
 protected:
  explicit OptimizerRebindTest(const CommOptions& options = kPatient)
      : group_(kRanks, options, &transport_.transport()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Trainer& trainer = trainers_[static_cast<size_t>(rank)];
      trainer.x = problem_.StartPoint();
      trainer.copy.resize(trainer.x.size());
      onebitOptimizerConfig_t config = DefaultOptimizer();
      config.freezeStep = kFreezeStep;
      config.parameterCopy = trainer.copy.data();
      config.parameterCopyType = onebitBfloat16;
      trainer.optimizer = MakeOptimizer(group_.comm(rank), trainer.x, config);
    }
  }

  // Makes steps up to number `last` on the given ranks; fails the test unless all succeed.
  void StepUntil(uint64_t last) {
    group_.Run([&](int rank) {
      Trainer& trainer = trainers_[static_cast<size_t>(rank)];
      while (StatsOf(trainer.optimizer).step < last) Check(Step(problem_, trainer, rank));
    });
  }

  // Makes a step with a fault on rank 1.
  std::vector<Outcome> StepWithFault(Fault::Kind kind, uint64_t message) {
    transport_.Arm({.kind = kind, .rank = 1, .message = message, .bit = 100});
    auto outcomes = group_.Call(
        [&](int rank) { return Step(problem_, trainers_[static_cast<size_t>(rank)], rank); });
    transport_.Arm({});
    return outcomes;
  }

  uint64_t StepOf(int rank) const {
    return StatsOf(trainers_[static_cast<size_t>(rank)].optimizer).step;
  }

  const ToyProblem problem_;
  FaultyTransport transport_;
  Trainer trainers_[kRanks];
  CommGroup group_;
};

struct State {
  std::vector<float> x, m, v;
  friend bool operator==(const State&, const State&) = default;
};

State StateOf(const Trainer& trainer) {
  const size_t count = trainer.x.size();
  return {trainer.x, MomentOf(trainer.optimizer.get(), "m", count),
          MomentOf(trainer.optimizer.get(), "v", count)};
}

// The result of a training without a fault.
class StraightTest : public OptimizerRebindTest {
 public:
  State Run() {
    StepUntil(kSteps);
    return StateOf(trainers_[0]);
  }
  void TestBody() override {}
};

class FaultAfterTest : public OptimizerRebindTest {
 public:
  // Only a lost message runs into a deadline.
  explicit FaultAfterTest(Fault::Kind kind)
      : OptimizerRebindTest(
            {.timeout_ms = kind == Fault::Kind::kDrop ? ShortTimeoutMs() : kPatient.timeout_ms,
             .one_exchange_elements = 0}),
        kind_(kind) {}

  // Returns true if some ranks made the step and others did not.
  bool Run(uint64_t steps_before, uint64_t message, const State& expected) {
    StepUntil(steps_before);
    StepWithFault(kind_, message);
    uint64_t newest = 0;
    for (int rank = 0; rank < kRanks; ++rank) newest = std::max(newest, StepOf(rank));
    const auto is_newest = [&](int rank) { return StepOf(rank) == newest; };
    const bool has_split = !is_newest(0) || !is_newest(1) || !is_newest(2);
    const int source = is_newest(0) ? 0 : is_newest(1) ? 1 : 2;
    for (const Outcome& outcome : group_.Call([&](int rank) {
           return GoOn(trainers_[static_cast<size_t>(rank)], group_.comm(rank), {});
         })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(trainers_[rank].source, source);
      EXPECT_EQ(StepOf(rank), newest);
      EXPECT_EQ(trainers_[rank].copy, trainers_[source].copy);
      EXPECT_TRUE(StateOf(trainers_[rank]) == StateOf(trainers_[source]));
    }
    StepUntil(kSteps);
    for (const Trainer& trainer : trainers_) {
      EXPECT_TRUE(StateOf(trainer) == expected)
          << "message " << message << " of step " << steps_before + 1;
      EXPECT_EQ(StatsOf(trainer.optimizer).frozen_at, uint64_t{kFreezeStep});
    }
    return has_split;
  }
  void TestBody() override {}

 private:
  const Fault::Kind kind_;
};

TEST(OptimizerRebind, TrainingEndsWhereItWouldHaveWithoutTheFault) {
  const State expected = StraightTest().Run();
  // In the dense stage, at the freeze, at the first compressed step and later. A step has two calls
  // with 4 messages each: the norm, and the average. The first of a stage begins with another one,
  // which compares values.
  for (const uint64_t steps_before : {2, 5, 6, 8}) {
    const uint64_t messages = steps_before == kFreezeStep ? 12 : 8;
    for (uint64_t message = 0; message < messages; ++message) {
      FaultAfterTest(Fault::Kind::kFlipHeader).Run(steps_before, message, expected);
      if (::testing::Test::HasFailure()) return;
    }
    // Only the rank that does not get the last message misses the step.
    EXPECT_TRUE(FaultAfterTest(Fault::Kind::kDrop).Run(steps_before, messages - 1, expected));
  }
}

TEST_F(OptimizerRebindTest, TheOthersGoOnWithoutALostRank) {
  StepUntil(8);
  std::vector<Outcome> outcomes = group_.Call([&](int rank) {
    if (rank == 1) return onebitCommAbort(group_.comm(1));
    return Step(problem_, trainers_[static_cast<size_t>(rank)], rank);
  });
  EXPECT_NE(outcomes[0].result, onebitSuccess);
  outcomes = group_.Call([&](int rank) {
    Trainer& trainer = trainers_[static_cast<size_t>(rank)];
    return rank == 1 ? onebitSuccess : GoOn(trainer, group_.comm(rank), {1});
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  group_.Run([&](int rank) {
    Trainer& trainer = trainers_[static_cast<size_t>(rank)];
    while (rank != 1 && StepOf(rank) < kSteps) Check(Step(problem_, trainer, rank));
  });
  EXPECT_TRUE(StateOf(trainers_[0]) == StateOf(trainers_[2]));
  EXPECT_EQ(StatsOf(trainers_[0].optimizer).compressed_steps, kSteps - kFreezeStep);
}

TEST_F(OptimizerRebindTest, OptimizersOfDifferentTrainingsAreRefused) {
  StepUntil(3);
  std::vector<UniqueComm> alone(kRanks);
  std::vector<OptimizerHandle> fresh(kRanks);
  std::vector<float> x = problem_.StartPoint();
  const auto outcomes = group_.Call([&](int rank) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result = onebitCommSplit(group_.comm(rank), 0, 0, &comm, nullptr);
    if (result != onebitSuccess) return result;
    alone[static_cast<size_t>(rank)].reset(comm);
    if (rank == 2) fresh[2] = MakeOptimizer(group_.comm(2), x, DefaultOptimizer());
    int source = -1;
    return onebitOptimizerRebind(rank == 2 ? fresh[2].get() : trainers_[rank].optimizer.get(), comm,
                                 &source);
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
}

// The obstacle is removed later: another compressor of the new communicator has an id of the
// optimizer's.
TEST_F(OptimizerRebindTest, CanBeRepeatedOnTheSameCommunicator) {
  StepUntil(8);
  std::vector<UniqueComm> made(kRanks);
  std::vector<UniqueCompressor> in_the_way(kRanks);
  const auto rebind = [&](int rank) {
    return onebitOptimizerRebind(trainers_[rank].optimizer.get(),
                                 made[static_cast<size_t>(rank)].get(), &trainers_[rank].source);
  };
  const auto outcomes = group_.Call([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    onebitComm_t comm = nullptr;
    const onebitResult_t result = onebitCommSplit(group_.comm(rank), 0, 0, &comm, nullptr);
    if (result != onebitSuccess) return result;
    made[r].reset(comm);
    onebitCompressorConfig_t config = ONEBIT_COMPRESSOR_CONFIG_INIT;
    config.tensorId = 0;
    if (rank == 0) in_the_way[r] = NewCompressor(comm, 8, onebitFloat32, config);
    return rebind(rank);
  });
  EXPECT_EQ(outcomes[0].result, onebitInvalidArgument) << outcomes[0].text;
  EXPECT_EQ(outcomes[1].result, onebitRemoteError) << outcomes[1].text;
  in_the_way.clear();
  for (const Outcome& outcome : group_.Call(rebind)) {
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
  StepUntil(kSteps);
  EXPECT_TRUE(StateOf(trainers_[0]) == StraightTest().Run());
}

TEST_F(OptimizerRebindTest, ArgumentsAreChecked) {
  int source = -1;
  const onebitOptimizer_t optimizer = trainers_[0].optimizer.get();
  EXPECT_EQ(onebitOptimizerRebind(nullptr, group_.comm(0), &source), onebitInvalidArgument);
  EXPECT_EQ(onebitOptimizerRebind(optimizer, nullptr, &source), onebitInvalidArgument);
  EXPECT_EQ(onebitOptimizerRebind(optimizer, group_.comm(0), nullptr), onebitInvalidArgument);
}

// The other ranks know the results of one missed step. Anything older belongs to another training.
TEST(OptimizerRebindMismatchTest, TwoCommitsApartIsRefused) {
  const OptimizerSubject subject = SubjectOf("adam", onebitAlgorithmOneBitAdam);
  for (const uint64_t steps : {1, 2}) {
    CommGroup group(2);
    std::vector<UniqueComm> made(2);
    std::vector<std::unique_ptr<OptimizerRank>> ranks(2);
    const std::vector<Outcome> outcomes = group.Call([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      ranks[r] = std::make_unique<OptimizerRank>(subject, group.comm(rank), rank);
      ranks[r]->StepUntil(1, steps);
      if (rank == 1) ranks[r]->Import(ranks[r]->Export());  // restarts its count of commits
      onebitComm_t comm = nullptr;
      Check(onebitCommSplit(group.comm(rank), 0, 0, &comm, nullptr));
      made[r].reset(comm);
      int source = -1;
      return onebitOptimizerRebind(ranks[r]->get(), comm, &source);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, steps == 1 ? onebitSuccess : onebitMismatch) << outcome.text;
    }
  }
}

}  // namespace
}  // namespace onebit::testing
