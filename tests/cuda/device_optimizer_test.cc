// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Optimizers on device memory give the same results as on host memory, to the bit.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_ranks.h"
#include "tests/cuda/placed_optimizer.h"

namespace onebit::testing {
namespace {

// A rank's view of a training.
struct Trajectory {
  std::vector<PlacedStep> steps;
  std::vector<float> m, v;
  std::vector<double> ratios;
  Blob state;
  Blob global;
  onebitOptimizerStats_t stats{};
};

constexpr size_t kCalls = 14;

// Returns to dense steps in the middle, and exports the state at the end.
Trajectory Run(const PlacedCase& one, onebitComm_t comm, int rank, int ranks, Memories memories) {
  PlacedOptimizer optimizer(one, comm, rank, ranks, memories);
  const bool is_zero_one = one.subject.config.algorithm == onebitAlgorithmZeroOneAdam;
  const bool freezes = one.subject.config.freezeStep != ONEBIT_FREEZE_NEVER;
  Trajectory trajectory;
  for (size_t call = 1; call <= kCalls; ++call) {
    trajectory.steps.push_back(optimizer.Step(call));
    if (call != 9) continue;
    Check(onebitOptimizerSync(optimizer.get()));
    if (freezes) Check(onebitOptimizerRewarm(optimizer.get(), is_zero_one ? -1 : 3));
  }
  trajectory.m = optimizer.M();
  trajectory.v = optimizer.V();
  trajectory.ratios = optimizer.Ratios();
  trajectory.state = optimizer.Export();
  trajectory.global = optimizer.Export(onebitStateGlobal);
  trajectory.stats.size = sizeof(trajectory.stats);
  Check(onebitOptimizerGetStats(optimizer.get(), &trajectory.stats));
  return trajectory;
}

std::vector<Trajectory> RunOnHost(const PlacedCase& one, int ranks) {
  std::vector<Trajectory> trajectories(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](onebitComm_t comm, int rank) {
    trajectories[static_cast<size_t>(rank)] = Run(one, comm, rank, ranks, Memories::kHost);
  });
  return trajectories;
}

void ExpectEqual(const Trajectory& found, const Trajectory& expected) {
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    ASSERT_EQ(DifferenceOf(found.steps[i], expected.steps[i]), "") << "call " << i + 1;
  }
  EXPECT_EQ(found.m, expected.m);
  EXPECT_EQ(found.v, expected.v);
  EXPECT_EQ(found.ratios, expected.ratios);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.global, expected.global);
  EXPECT_EQ(found.stats.step, expected.stats.step);
  EXPECT_EQ(found.stats.skipped, expected.stats.skipped);
  EXPECT_EQ(found.stats.frozen_at, expected.stats.frozen_at);
  EXPECT_EQ(found.stats.local_overflows, expected.stats.local_overflows);
}

void CompareWithHost(const PlacedCase& one, Over over, int ranks) {
  SCOPED_TRACE(Describe(one));
  PlacedCase in_one_buffer = one;
  in_one_buffer.is_list = false;
  const std::vector<Trajectory> expected = RunOnHost(in_one_buffer, ranks);
  std::vector<Trajectory> found(static_cast<size_t>(ranks));
  RunDeviceRanks(over, ranks, [&](onebitComm_t comm, int rank) {
    found[static_cast<size_t>(rank)] = Run(one, comm, rank, ranks, Memories::kDevice);
  });
  for (size_t rank = 0; rank < found.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ExpectEqual(found[rank], expected[rank]);
  }
}

std::vector<OptimizerSubject> Subjects() {
  std::vector<OptimizerSubject> subjects;
  for (const OptimizerSubject& subject : AllOptimizers()) {
    if (subject.count() != 0) subjects.push_back(subject);
  }
  return subjects;
}

using DeviceOptimizerCase = std::tuple<Over, OptimizerSubject>;
class DeviceOptimizerTest : public ::testing::TestWithParam<DeviceOptimizerCase> {
 protected:
  Over over() const { return std::get<0>(GetParam()); }
  const OptimizerSubject& subject() const { return std::get<1>(GetParam()); }
};

TEST_P(DeviceOptimizerTest, EqualsTheHostWithSegments) {
  CompareWithHost({.subject = subject()}, over(), 3);
}

TEST_P(DeviceOptimizerTest, EqualsTheHostWithoutSegments) {
  CompareWithHost({.subject = subject(), .has_segments = false, .has_copy = false}, over(), 2);
}

TEST_P(DeviceOptimizerTest, EqualsTheHostWithGradientsOf16Bits) {
  CompareWithHost({.subject = subject(), .gradient_type = onebitFloat16}, over(), 2);
  CompareWithHost({.subject = subject(), .gradient_type = onebitBfloat16, .max_grad_norm = 2},
                  over(), 2);
}

TEST_P(DeviceOptimizerTest, EqualsTheHostWhereGradientsAreNotFinite) {
  PlacedCase one{.subject = subject(), .nan_calls = {2, 6, 7, 8, 12, 13}};
  CompareWithHost(one, over(), 2);
  one.has_segments = false;
  CompareWithHost(one, over(), 2);
  one.max_grad_norm = 3;
  one.gradient_type = onebitBfloat16;
  CompareWithHost(one, over(), 2);
}

// Compares a list on the device with one buffer on the host.
TEST_P(DeviceOptimizerTest, EqualsTheHostAsAList) {
  CompareWithHost({.subject = subject(), .is_list = true}, over(), 3);
  CompareWithHost({.subject = subject(),
                   .gradient_type = onebitBfloat16,
                   .is_list = true,
                   .max_grad_norm = 3,
                   .nan_calls = {2, 6, 7, 12}},
                  over(), 2);
}

TEST_P(DeviceOptimizerTest, EqualsTheHostOnOneRank) {
  CompareWithHost({.subject = subject(), .nan_calls = {6}}, over(), 1);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, DeviceOptimizerTest,
                         ::testing::Combine(::testing::Values(Over::kLocal, Over::kNccl),
                                            ::testing::ValuesIn(Subjects())),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace onebit::testing
