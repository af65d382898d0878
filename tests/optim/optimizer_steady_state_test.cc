// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// From the third step of each stage on, an optimizer's step allocates nothing and takes no lock.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/training.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/lock_counter.h"

namespace onebit::testing {
namespace {

struct Used {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

// A variant of the steps.
struct Steps {
  onebitDataType_t type = onebitFloat32;
  bool has_nan = false;
  size_t listed_segments = 0;  // whose gradients are handed over one by one; 0: in one buffer
};

// The maximum over ranks and steps, without the first two steps of each stage.
Used MostUsed(onebitOptimizerConfig_t config, const Steps& steps) {
  constexpr uint64_t kFreezeStep = 8;
  const bool is_zero_one = config.algorithm == onebitAlgorithmZeroOneAdam;
  (is_zero_one ? config.varFreezeStep : config.freezeStep) = kFreezeStep;
  const ToyProblem problem{.ranks = 2, .dimension = 300};
  Used used[2];
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    for (uint64_t step = 1; step <= 20; ++step) {
      std::vector<float> gradient = problem.Gradient(x, rank, step);
      if (steps.has_nan && step > kFreezeStep + 5) gradient[0] = NAN;
      std::vector<std::byte> bytes = Encode(gradient, steps.type, 1);
      const Used before = {AllocationsOfThisThread(), LocksOfThisThread()};
      for (size_t i = 0; i < steps.listed_segments; ++i) {
        const size_t offset = config.segments[i].offset * (bytes.size() / gradient.size());
        const bool is_null = i == 0 && step % 2 == 0;
        Check(onebitOptimizerAddGradient(optimizer.get(), i,
                                         is_null ? nullptr : bytes.data() + offset, steps.type));
      }
      const onebitResult_t result =
          onebitOptimizerStep(optimizer.get(), steps.listed_segments == 0 ? bytes.data() : nullptr,
                              steps.type, 0.01, 1, 10, nullptr, nullptr);
      const Used after = {AllocationsOfThisThread(), LocksOfThisThread()};
      Check(result);
      // Steps that refresh a variance recompute masks.
      const bool is_steady = is_zero_one
                                 ? step > kFreezeStep + 2
                                 : (step > 2 && step <= kFreezeStep) || step > kFreezeStep + 2;
      if (!is_steady) continue;
      Used& most = used[rank];
      most.allocations = std::max(most.allocations, after.allocations - before.allocations);
      most.locks = std::max(most.locks, after.locks - before.locks);
    }
  });
  return {std::max(used[0].allocations, used[1].allocations),
          std::max(used[0].locks, used[1].locks)};
}

void ExpectNothingUsed(const onebitOptimizerConfig_t& config, onebitDataType_t type,
                       bool has_nan = false, size_t listed_segments = 0) {
  const Used used = MostUsed(config, {type, has_nan, listed_segments});
  EXPECT_EQ(used.allocations, 0u);
  EXPECT_EQ(used.locks, 0u);
}

TEST(OneBitAdamSteadyStateTest, StepAllocatesNothingAndTakesNoLock) {
  const onebitOptimizerConfig_t config = DefaultOptimizer();
  ExpectNothingUsed(config, onebitFloat32);
  ExpectNothingUsed(config, onebitBfloat16);
}

TEST(OneBitAdamSteadyStateTest, SkippedStepAllocatesNothingAndTakesNoLock) {
  ExpectNothingUsed(DefaultOptimizer(), onebitFloat32, true);
}

TEST(OptimizerSteadyStateTest, OthersAllocateNothingAndTakeNoLock) {
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.algorithm = onebitAlgorithmOneBitLamb;
  ExpectNothingUsed(config, onebitFloat32);
  ExpectNothingUsed(config, onebitBfloat16, true);
  config.algorithm = onebitAlgorithmZeroOneAdam;
  config.localStepScaler = 4;
  ExpectNothingUsed(config, onebitFloat32);
  ExpectNothingUsed(config, onebitFloat16);
  ExpectNothingUsed(config, onebitFloat32, true);
}

TEST(OneBitAdamSteadyStateTest, StepWithSegmentsAllocatesNothingAndTakesNoLock) {
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 37;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 37;
  segments[1].count = 263;
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.segments = segments;
  config.segmentCount = 2;
  ExpectNothingUsed(config, onebitFloat32);
  ExpectNothingUsed(config, onebitFloat16);
}

TEST(OptimizerSteadyStateTest, ListAllocatesNothingAndTakesNoLock) {
  onebitSegment_t segments[3] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 37;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 37;
  segments[1].count = 200;
  segments[2].offset = 237;
  segments[2].count = 63;
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.segments = segments;
  config.segmentCount = 3;
  for (const onebitAlgorithm_t algorithm :
       {onebitAlgorithmOneBitAdam, onebitAlgorithmOneBitLamb, onebitAlgorithmZeroOneAdam}) {
    config.algorithm = algorithm;
    ExpectNothingUsed(config, onebitFloat32, false, 3);
    ExpectNothingUsed(config, onebitBfloat16, false, 3);
  }
}

}  // namespace
}  // namespace onebit::testing
