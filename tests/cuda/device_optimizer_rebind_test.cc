// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers on devices migrate to another communicator after a step that only some ranks made:
// training ends as it would have without the fault.
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/placed_optimizer.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/faulty_transport.h"

namespace onebit::testing {
namespace {

constexpr int kRanks = 3;
constexpr uint64_t kSteps = 11;

PlacedCase CaseOf(onebitAlgorithm_t algorithm) {
  return {.subject = SubjectOf("rebind", algorithm), .max_grad_norm = 2};
}

// Everything that is equal on all ranks after the last step.
struct State {
  std::vector<std::byte> x, copy;
  std::vector<float> m, v;
  friend bool operator==(const State&, const State&) = default;
};

class Job {
 public:
  Job(const PlacedCase& one, Memories memories)
      : group_(kRanks, {.timeout_ms = PacedMs(1000), .one_exchange_elements = 0},
               &transport_.transport()) {
    for (auto& optimizer : optimizers_) optimizer = nullptr;
    group_.Run([&](int rank) {
      if (memories == Memories::kDevice) UseCudaDevice(rank);
      optimizers_[rank] =
          std::make_unique<PlacedOptimizer>(one, group_.comm(rank), rank, kRanks, memories);
    });
    memories_ = memories;
  }

  uint64_t StepOf(int rank) const {
    onebitOptimizerStats_t stats{};
    stats.size = sizeof(stats);
    Check(onebitOptimizerGetStats(optimizers_[rank]->get(), &stats));
    return stats.step;
  }
  std::vector<Outcome> Call(const std::function<onebitResult_t(int rank)>& call) {
    return group_.Call([&](int rank) {
      if (memories_ == Memories::kDevice) UseCudaDevice(rank);
      return call(rank);
    });
  }
  void StepUntil(uint64_t last) {
    const auto outcomes = Call([&](int rank) {
      while (StepOf(rank) < last) optimizers_[rank]->Step(StepOf(rank) + 1);
      return onebitSuccess;
    });
    for (const Outcome& outcome : outcomes) ASSERT_EQ(outcome.result, onebitSuccess);
  }
  // Makes a step with a fault on rank 1.
  void StepWithFault(uint64_t message) {
    transport_.Arm({.kind = Fault::Kind::kDrop, .rank = 1, .message = message, .bit = 100});
    Call([&](int rank) { return optimizers_[rank]->TryStep(StepOf(rank) + 1, nullptr); });
    transport_.Arm({});
  }
  void GoOn() {
    std::vector<UniqueComm> made(kRanks);
    const auto outcomes = Call([&](int rank) {
      onebitComm_t comm = nullptr;
      const onebitResult_t result =
          onebitCommShrink(group_.comm(rank), nullptr, 0, &comm, nullptr, ONEBIT_SHRINK_DEFAULT);
      made[static_cast<size_t>(rank)].reset(comm);
      if (result != onebitSuccess) return result;
      int source = -1;
      return onebitOptimizerRebind(optimizers_[rank]->get(), comm, &source);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    comms_ = std::move(made);
  }
  State StateOf(int rank) {
    PlacedOptimizer& optimizer = *optimizers_[rank];
    if (memories_ == Memories::kDevice) UseCudaDevice(rank);
    return {optimizer.x().Read(), optimizer.copy().Read(), optimizer.M(), optimizer.V()};
  }

 private:
  FaultyTransport transport_;
  Memories memories_;
  CommGroup group_;
  std::vector<UniqueComm> comms_;
  std::unique_ptr<PlacedOptimizer> optimizers_[kRanks];
};

class DeviceRebindTest : public ::testing::TestWithParam<onebitAlgorithm_t> {};

TEST_P(DeviceRebindTest, TrainingEndsWhereItWouldHaveWithoutTheFault) {
  const PlacedCase one = CaseOf(GetParam());
  Job straight(one, Memories::kHost);
  straight.StepUntil(kSteps);
  const State expected = straight.StateOf(0);
  bool has_split = false;
  // In the dense stage, at the freeze, and after it. The last message of a step decides which ranks
  // have made it; earlier ones belong to its other calls.
  for (const uint64_t steps_before : {2, 4, 7}) {
    for (const uint64_t message : {1, 3, 5, 7, 9, 11}) {
      SCOPED_TRACE(Format("message {} of step {}", message, steps_before + 1));
      Job job(one, Memories::kDevice);
      job.StepUntil(steps_before);
      job.StepWithFault(message);
      const bool is_split = job.StepOf(0) != job.StepOf(1) || job.StepOf(1) != job.StepOf(2);
      has_split |= is_split;
      job.GoOn();
      for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(job.StepOf(rank), job.StepOf(0));
      job.StepUntil(kSteps);
      for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(job.StateOf(rank) == expected) << rank;
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_TRUE(has_split);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, DeviceRebindTest,
                         ::testing::Values(onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb),
                         [](const auto& info) {
                           return info.param == onebitAlgorithmOneBitAdam ? "adam" : "lamb";
                         });

}  // namespace
}  // namespace onebit::testing
