// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A step allocates nothing in the steady state.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "allocation_counter.h"
#include "training.h"

namespace onebit::testing {
namespace {

// Allocations of the most wasteful step after the first two of each stage.
size_t MostAllocations(onebitOptimizerConfig_t config, onebitDataType_t type, bool has_nan) {
  constexpr uint64_t kFreezeStep = 8;
  config.freezeStep = kFreezeStep;
  const ToyProblem problem{.ranks = 2, .dimension = 300};
  size_t most[2] = {0, 0};
  RunRanks(2, [&](onebitComm_t comm, int rank) {
    std::vector<float> x = problem.StartPoint();
    const OptimizerHandle optimizer = MakeOptimizer(comm, x, config);
    for (uint64_t step = 1; step <= 20; ++step) {
      std::vector<float> gradient = problem.Gradient(x, rank, step);
      if (has_nan && step > kFreezeStep + 5) gradient[0] = NAN;
      std::vector<std::byte> bytes = Encode(gradient, type, 1);
      const size_t before = AllocationCount();
      const onebitResult_t result =
          onebitOptimizerStep(optimizer.get(), bytes.data(), type, 0.01, 1, 10, nullptr, nullptr);
      const size_t count = AllocationCount() - before;
      Check(result);
      const bool is_steady = (step > 2 && step <= kFreezeStep) || step > kFreezeStep + 2;
      if (is_steady && count > most[rank]) most[rank] = count;
    }
  });
  return std::max(most[0], most[1]);
}

TEST(OneBitAdamAllocationTest, CounterCounts) {
  const size_t before = AllocationCount();
  std::vector<int> numbers(100);
  EXPECT_EQ(AllocationCount(), before + 1);
  EXPECT_EQ(numbers[99], 0);
}

TEST(OneBitAdamAllocationTest, StepAllocatesNothing) {
  const onebitOptimizerConfig_t config = DefaultOptimizer();
  EXPECT_EQ(MostAllocations(config, onebitFloat32, false), 0u);
  EXPECT_EQ(MostAllocations(config, onebitBfloat16, false), 0u);
}

TEST(OneBitAdamAllocationTest, SkippedStepAllocatesNothing) {
  EXPECT_EQ(MostAllocations(DefaultOptimizer(), onebitFloat32, true), 0u);
}

TEST(OneBitAdamAllocationTest, StepWithSegmentsAllocatesNothing) {
  onebitSegment_t segments[2] = {ONEBIT_SEGMENT_INIT, ONEBIT_SEGMENT_INIT};
  segments[0].count = 37;
  segments[0].flags = onebitSegmentDense;
  segments[1].offset = 37;
  segments[1].count = 263;
  onebitOptimizerConfig_t config = DefaultOptimizer();
  config.segments = segments;
  config.segmentCount = 2;
  EXPECT_EQ(MostAllocations(config, onebitFloat32, false), 0u);
  EXPECT_EQ(MostAllocations(config, onebitFloat16, false), 0u);
}

}  // namespace
}  // namespace onebit::testing
