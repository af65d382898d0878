// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The batches into which calls of a group are cut, and the messages of a merged plan.
#include "plan/group_plan.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "plan/algorithms.h"

namespace onebit {
namespace {

PlanKey DenseKey(size_t count) { return {.collective = Collective::kAllReduce, .count = count}; }

std::vector<size_t> Cut(const std::vector<size_t>& counts, uint64_t group_elements) {
  std::vector<PlanKey> keys;
  for (const size_t count : counts) keys.push_back(DenseKey(count));
  std::vector<size_t> cuts;
  for (size_t begin = 0; begin < keys.size();) {
    cuts.push_back(FirstCut(std::span(keys).subspan(begin), 4, group_elements).count);
    begin += cuts.back();
  }
  return cuts;
}

using Cuts = std::vector<size_t>;

TEST(GroupCutTest, LargeCallsAreAlone) {
  EXPECT_EQ(Cut({10, 100, 5, 6, 101, 101, 7}, 100), (Cuts{4, 1, 1, 1}));
  EXPECT_EQ(Cut({101}, 100), (Cuts{1}));
}

TEST(GroupCutTest, ABatchHasUpToFourTimesTheLimit) {
  EXPECT_EQ(Cut({100, 100, 100, 100, 1, 1, 1}, 100), (Cuts{4, 3}));
  EXPECT_EQ(Cut({100, 100, 100, 99, 1, 1, 1}, 100), (Cuts{5, 2}));
}

TEST(GroupCutTest, WithoutALimitEveryCallIsAlone) { EXPECT_EQ(Cut({0, 1, 2}, 0), (Cuts{1, 1, 1})); }

TEST(GroupCutTest, TheTransportsOwnAllReduceIsAlone) {
  std::vector<PlanKey> keys(3, DenseKey(10));
  keys[1].is_native = true;
  EXPECT_EQ(FirstCut(keys, 4, 100).count, 1u);
  EXPECT_EQ(FirstCut(std::span(keys).subspan(1), 4, 100).count, 1u);
}

TEST(GroupCutTest, WeightsInTwoLevelsAreAlone) {
  std::vector<PlanKey> keys(3, DenseKey(10));
  keys[1].has_two_levels = true;
  EXPECT_EQ(FirstCut(keys, 4, 100).count, 3u);
  keys[1].is_weighted = true;
  EXPECT_EQ(FirstCut(keys, 4, 100).count, 1u);
}

TEST(GroupCutTest, PartsOfAllRanksCount) {
  const PlanKey part = {.collective = Collective::kAllGather, .count = 30};
  const std::vector<PlanKey> keys = {part, DenseKey(1), part};
  EXPECT_EQ(FirstCut(keys, 4, 120).count, 3u);
  EXPECT_EQ(FirstCut(keys, 4, 119).count, 1u);
  EXPECT_EQ(FirstCut(keys, 5, 120).count, 1u);
}

TEST(GroupCutTest, BuffersOfDenseCallsHaveALimit) {
  PlanKey compressed = DenseKey(100);
  compressed.codec.kind = CodecKind::kEf;
  const PlanKey all_to_all = {.collective = Collective::kAllToAll, .count = 4};  // 128 bytes
  const std::vector<PlanKey> keys = {DenseKey(16), compressed, all_to_all, DenseKey(16)};
  EXPECT_EQ(FirstCut(keys, 4, 100, 256).count, 4u);
  EXPECT_EQ(FirstCut(keys, 4, 100, 255).count, 3u);
  EXPECT_EQ(FirstCut(keys, 4, 100, 191).count, 2u);
  EXPECT_EQ(FirstCut(keys, 4, 100, 10).count, 1u) << "a call that is too large is alone";
}

TEST(GroupCutTest, ATableHasAnEnd) {
  EXPECT_EQ(Cut(std::vector<size_t>(10'000, 0), 100), (Cuts{4096, 4096, 1808}));
}

// Rank r's message to rank p has the size that p expects, for all calls.
TEST(MergePlansTest, MessagesOfTwoRanksFitEachOther) {
  constexpr uint32_t kRanks = 4;
  const PlanKey dense = DenseKey(1000);
  PlanKey compressed = {.collective = Collective::kAllReduce,
                        .codec = {.kind = CodecKind::kEf, .block = 64},
                        .count = 5000};
  PlanKey one_exchange = compressed;
  one_exchange.is_one_exchange = true;
  const PlanKey broadcast = {.collective = Collective::kBroadcast, .root = 2, .count = 77};
  const PlanKey barrier = {.collective = Collective::kBarrier};
  std::vector<GroupPlan> groups;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<std::shared_ptr<const Plan>> plans;
    for (const PlanKey& key : {dense, compressed, one_exchange, broadcast, barrier}) {
      plans.push_back(std::make_shared<const Plan>(SelectPlan(key, rank, HostMap(kRanks), 300)));
    }
    groups.push_back(MergePlans(plans, rank, kRanks));
  }
  const auto bytes_of = [&](StepKind kind, uint32_t rank, uint32_t peer, uint8_t exchange) {
    std::vector<size_t> bytes;
    for (const Step& step : groups[rank].plan.steps) {
      if (step.kind != kind || step.peer != peer || step.exchange != exchange) continue;
      EXPECT_EQ(step.call, kAllCalls);
      bytes.push_back(step.region.bytes);
    }
    return bytes;
  };
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(groups[rank].plan.MessagesFrom((rank + 1) % kRanks), 2u);
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      for (const uint8_t exchange : {uint8_t{1}, uint8_t{2}}) {
        const auto sent = bytes_of(StepKind::kSend, rank, peer, exchange);
        EXPECT_EQ(sent, bytes_of(StepKind::kReceive, peer, rank, exchange));
        EXPECT_EQ(sent.size(), rank == peer ? 0u : 1u);
      }
    }
  }
}

}  // namespace
}  // namespace onebit
