// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Random plans of a soak are reproducible and never contain an impossible action.
#include "perf/studies/soak/soak_plan.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebit::soak {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint64_t kRounds = 200;

std::string Text(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.actions.size(); ++i) text.append(Describe(plan, i)).append("\n");
  return text;
}

// The objects that exist while a plan is carried out. Every function expects that its action is
// possible.
class World {
 public:
  explicit World(const Plan& plan) : plan_(plan), homes_(plan.tensors.size(), kNone) {
    live_.insert(0);
  }

  void Apply(const Action& action) {
    EXPECT_TRUE(live_.contains(action.group));
    switch (action.kind) {
      case ActionKind::kSplit:
      case ActionKind::kShrink:
        for (const int group : action.new_groups) Add(action, group);
        return;
      case ActionKind::kDestroyGroup:
        EXPECT_NE(action.group, 0);
        live_.erase(action.group);
        std::replace(homes_.begin(), homes_.end(), action.group, kDetached);
        return;
      case ActionKind::kCreateTensor:
        EXPECT_EQ(HomeOf(action), kNone);
        HomeOf(action) = action.group;
        return;
      case ActionKind::kRebind:
        EXPECT_NE(HomeOf(action), kNone);
        EXPECT_NE(HomeOf(action), action.group);
        HomeOf(action) = action.group;
        return;
      case ActionKind::kDestroyTensor:
        EXPECT_NE(HomeOf(action), kNone);
        HomeOf(action) = kNone;
        return;
      case ActionKind::kReset:
      case ActionKind::kCompressed:
        EXPECT_EQ(HomeOf(action), action.group);
        return;
      case ActionKind::kBroadcast:
        EXPECT_LT(static_cast<size_t>(action.root), MembersOf(action.group).size());
        return;
      case ActionKind::kDense:
      case ActionKind::kBarrier:
        return;
    }
  }

  void ExpectOnlyTheFirstGroup() const {
    EXPECT_THAT(live_, testing::ElementsAre(0));
    EXPECT_THAT(homes_, testing::Each(kNone));
  }

 private:
  static constexpr int kNone = -1;
  static constexpr int kDetached = -2;

  const Members& MembersOf(int group) const { return plan_.groups[static_cast<size_t>(group)]; }
  int& HomeOf(const Action& action) { return homes_[static_cast<size_t>(action.tensor)]; }

  void Add(const Action& action, int group) {
    const Members& members = MembersOf(group);
    const std::set<int> distinct(members.begin(), members.end());
    EXPECT_FALSE(members.empty());
    EXPECT_EQ(distinct.size(), members.size());
    EXPECT_THAT(MembersOf(action.group), testing::IsSupersetOf(members));
    EXPECT_TRUE(live_.insert(group).second);
  }

  const Plan& plan_;
  std::set<int> live_;
  std::vector<int> homes_;  // [tensor]
};

TEST(SoakPlanTest, DependsOnSeedAndRoundAlone) {
  const std::string plan = Text(MakePlan({}, kSeed, 3));
  EXPECT_EQ(plan, Text(MakePlan({}, kSeed, 3)));
  EXPECT_NE(plan, Text(MakePlan({}, kSeed, 4)));
  EXPECT_NE(plan, Text(MakePlan({}, kSeed + 1, 3)));
}

TEST(SoakPlanTest, CanBeCarriedOutForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 4, 7}) {
    for (uint64_t round = 0; round < kRounds; ++round) {
      const Plan plan = MakePlan({.ranks = ranks}, kSeed, round);
      World world(plan);
      for (const Action& action : plan.actions) world.Apply(action);
      world.ExpectOnlyTheFirstGroup();
      if (HasFailure()) FAIL() << ranks << " ranks, round " << round << "\n" << Text(plan);
    }
  }
}

TEST(SoakPlanTest, HasEverythingBeforeLong) {
  std::set<ActionKind> kinds;
  std::set<size_t> group_sizes;
  bool has_left_out = false, has_nan = false, has_empty = false, has_masked = false;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Plan plan = MakePlan({}, kSeed, round);
    for (const Members& members : plan.groups) group_sizes.insert(members.size());
    for (const TensorSpec& tensor : plan.tensors) {
      has_empty |= tensor.count == 0;
      has_masked |= !tensor.mask.empty();
    }
    for (const Action& action : plan.actions) {
      kinds.insert(action.kind);
      has_nan |= action.nan_rank >= 0;
      has_left_out |= std::count(action.colors.begin(), action.colors.end(), kNoColor) > 0;
    }
  }
  EXPECT_EQ(kinds.size(), kActionKinds);
  EXPECT_THAT(group_sizes, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(has_left_out && has_nan && has_empty && has_masked);
}

TEST(SoakPlanTest, KeepsToTheLargestTensor) {
  const PlanLimits limits{.max_elements = 1000};
  size_t largest = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (const Action& action : MakePlan(limits, kSeed, round).actions) {
      largest = std::max(largest, action.count);
    }
  }
  EXPECT_LE(largest, 1000U);
  EXPECT_GE(largest, 900U);
}

}  // namespace
}  // namespace onebit::soak
