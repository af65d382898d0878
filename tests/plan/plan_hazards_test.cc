// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// No step of a plan touches memory that another one writes, unless one waits for the other.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plan/plan_hazards.h"
#include "tests/plan/plan_shapes.h"

namespace onebit {
namespace {

bool CanBeInPlace(const PlanKey& key) {
  return key.collective != Collective::kAllToAll && key.collective != Collective::kAllToAllv;
}

TEST(PlanHazardsTest, StepsThatShareMemoryWaitForEachOther) {
  ForEachShape([](const Shape& shape, const Plans& plans) {
    for (const Plan& plan : plans) {
      ASSERT_EQ(HazardOf(plan, Buffers::kSeparate), "") << "rank " << plan.rank;
      if (!CanBeInPlace(shape.key)) continue;
      ASSERT_EQ(HazardOf(plan, Buffers::kInPlace), "") << "in place, rank " << plan.rank;
    }
  });
}

TEST(PlanHazardsTest, HeadersOfTheWireShareMemoryWithNothing) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll}) {
    for (const CodecKind codec : {CodecKind::kDense, CodecKind::kEf}) {
      for (const uint32_t block : {0u, 64u}) {
        const PlanKey key{.collective = collective,
                          .codec = {.kind = codec, .block = block},
                          .is_one_exchange = false,
                          .count = 1000,
                          .header_room = 64};
        EXPECT_EQ(HazardOf(SelectPlan(key, 1, HostMap(3), 100), Buffers::kSeparate), "")
            << Shape{key, 3, 100};
      }
    }
  }
}

// Calls of every kind, for a group.
std::vector<PlanKey> CallsOfAGroup(Buffers buffers) {
  std::vector<PlanKey> keys = {{.collective = Collective::kBarrier},
                               {.collective = Collective::kBroadcast, .root = 1, .count = 77}};
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll}) {
    if (collective == Collective::kAllToAll && buffers == Buffers::kInPlace) continue;
    for (const CodecKind codec : {CodecKind::kDense, CodecKind::kEf}) {
      keys.push_back(
          {.collective = collective, .codec = {.kind = codec, .block = 64}, .count = 1000});
    }
  }
  keys.push_back({.collective = Collective::kAllReduce,
                  .codec = {.kind = CodecKind::kEf, .block = 64},
                  .is_one_exchange = true,
                  .count = 1000});
  return keys;
}

TEST(PlanHazardsTest, CallsOfAGroupShareNothingButMessages) {
  for (const Buffers buffers : {Buffers::kSeparate, Buffers::kInPlace}) {
    for (uint32_t ranks = 2; ranks <= 5; ++ranks) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::vector<std::shared_ptr<const Plan>> plans;
        for (const PlanKey& key : CallsOfAGroup(buffers)) {
          plans.push_back(std::make_shared<const Plan>(SelectPlan(key, rank, HostMap(ranks), 300)));
        }
        ASSERT_EQ(HazardOf(MergePlans(plans, rank, ranks), buffers), "")
            << "rank " << rank << " of " << ranks;
      }
    }
  }
}

// In a plan whose regions are all in use, removing any dependency creates a hazard, except for
// dependencies that others imply and those that are not about memory. So plans wait for nothing in
// vain, and the rule above detects every missing dependency.
TEST(PlanHazardsTest, EveryDependencyIsNeeded) {
  constexpr size_t kCount = 1152;  // no chunk and no segment of three ranks is empty
  std::vector<PlanKey> keys;
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll}) {
    keys.push_back({.collective = collective, .count = kCount});
    for (const uint32_t block : {0u, 64u}) {
      keys.push_back({.collective = collective,
                      .codec = {.kind = CodecKind::kEf, .block = block},
                      .count = kCount});
    }
  }
  keys.push_back({.collective = Collective::kAllReduce,
                  .codec = {.kind = CodecKind::kEf, .block = 64},
                  .is_one_exchange = true,
                  .count = kCount});
  size_t needed = 0;
  for (const PlanKey& key : keys) {
    const Plan plan = SelectPlan(key, 1, HostMap(3), 150);
    for (uint32_t index = 0; index < plan.steps.size(); ++index) {
      const Step& step = plan.steps[index];
      for (uint32_t i = 0; i < step.successor_count; ++i) {
        const uint32_t edge = step.first_successor + i;
        const uint32_t after = plan.successors[edge];
        const Plan broken = WithoutDependency(plan, edge);
        if (Precedes(broken, index, after)) continue;
        if (plan.steps[after].kind == StepKind::kVerdict || step.kind == StepKind::kVerdict) {
          continue;  // not about memory
        }
        const Buffers buffers = CanBeInPlace(key) ? Buffers::kInPlace : Buffers::kSeparate;
        EXPECT_NE(HazardOf(broken, buffers), "")
            << Shape{key, 3, 150} << ": step " << after << " need not wait for step " << index;
        ++needed;
      }
    }
  }
  EXPECT_GT(needed, 100u);
}

// In place, a dense allreduce receives the mean of a chunk into its own elements of that chunk,
// which it must have sent before.
TEST(PlanHazardsTest, AReceiveInPlaceWaitsForTheSendOfTheSameMemory) {
  const Plan plan =
      SelectPlan({.collective = Collective::kAllReduce, .count = 1000}, 0, HostMap(2), 10'000);
  for (uint32_t index = 0; index < plan.steps.size(); ++index) {
    const Step& step = plan.steps[index];
    if (step.kind != StepKind::kSend || step.successor_count == 0) continue;
    const Plan broken = WithoutDependency(plan, step.first_successor);
    EXPECT_EQ(HazardOf(broken, Buffers::kSeparate), "");
    EXPECT_NE(HazardOf(broken, Buffers::kInPlace).find("writes output"), std::string::npos);
    return;
  }
  FAIL() << "no step waits for a send";
}

}  // namespace
}  // namespace onebit
