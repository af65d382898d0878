// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decisions about sequences of calls.
#include "plugins/nccl_preload/call_policy.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace onebit::preload {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;

class CallPolicyTest : public ::testing::Test {
 protected:
  explicit CallPolicyTest(const char* text = "*:fp4,start=2") { ParseRules(text, &rules_); }

  std::unique_ptr<CallPolicy> Make(uint64_t most_elements = kPlenty) {
    return std::make_unique<CallPolicy>(rules_, "world", 4, most_elements);
  }

  Rules rules_;
};

TEST_F(CallPolicyTest, ATensorIsIdentifiedThenStartsThenIsCompressed) {
  const auto policy = Make();
  std::vector<Reason> reasons;
  for (int step = 0; step < 5; ++step) {
    reasons.push_back(policy->Decide({.count = 10}, std::nullopt, true).reason);
    policy->Decide({.count = 20}, std::nullopt, true);
  }
  EXPECT_EQ(reasons, (std::vector<Reason>{Reason::kNoCycle, Reason::kNoCycle, Reason::kStart,
                                          Reason::kStart, Reason::kCompressed}));
  EXPECT_EQ(policy->elements(), 30u);
}

TEST_F(CallPolicyTest, ABrokenCycleEndsItsTensors) {
  const auto policy = Make();
  for (int step = 0; step < 10; ++step) {
    policy->Decide({.count = 10}, std::nullopt, true);
    policy->Decide({.count = 20}, std::nullopt, true);
  }
  EXPECT_EQ(policy->elements(), 30u);
  const Decision decision = policy->Decide({.count = 30}, std::nullopt, true);
  EXPECT_EQ(decision.reason, Reason::kNoCycle);
  EXPECT_EQ(decision.ended, (std::vector<uint64_t>{0, 1}));
}

TEST_F(CallPolicyTest, NamedTensorsNeedNoCycle) {
  const auto policy = Make();
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(policy->Decide({.count = 10}, 7, true).reason, Reason::kStart);
  }
  const Decision first = policy->Decide({.count = 10}, 7, true);
  EXPECT_EQ(first.reason, Reason::kCompressed);
  EXPECT_EQ(policy->Decide({.count = 10}, 8, true).reason, Reason::kStart);
  const Decision changed = policy->Decide({.count = 11}, 7, true);
  EXPECT_EQ(changed.reason, Reason::kStart);
  EXPECT_EQ(changed.ended, (std::vector<uint64_t>{first.tensor}));
}

TEST_F(CallPolicyTest, ResidualsHaveALimit) {
  const auto policy = Make(25);
  Reason last[2] = {};
  for (int step = 0; step < 10; ++step) {
    last[0] = policy->Decide({.count = 10}, std::nullopt, true).reason;
    last[1] = policy->Decide({.count = 20}, std::nullopt, true).reason;
  }
  EXPECT_EQ(last[0], Reason::kNoRoom);  // the cycle was found at the other one
  EXPECT_EQ(last[1], Reason::kCompressed);
  EXPECT_EQ(policy->elements(), 20u);
}

TEST_F(CallPolicyTest, CallsWithoutARuleAreNoPartOfTheCycle) {
  const auto policy = Make();
  Reason reason = Reason::kNoRule;
  for (int step = 0; step < 20; ++step) {
    reason = policy->Decide({.count = 10}, std::nullopt, true).reason;
    policy->Decide({.type = DataType::kInt64, .count = 1 + static_cast<uint64_t>(step)},
                   std::nullopt, true);
  }
  EXPECT_EQ(reason, Reason::kCompressed);
}

TEST(DefaultScopeTest, HoldsForOneCommunicator) {
  DefaultScope scope(0);
  const CommFacts world{.name = "", .ranks = 4};
  EXPECT_TRUE(scope.Includes(1, world, {.count = 100}));
  // A communicator of one rank, a barrier, and counts of tokens.
  EXPECT_FALSE(scope.Includes(2, {.name = "", .ranks = 1}, {.count = 100}));
  EXPECT_FALSE(scope.Includes(3, world, {.count = 1}));
  EXPECT_FALSE(scope.Includes(3, world, {.type = DataType::kInt64, .count = 100}));
  EXPECT_TRUE(scope.Includes(1, world, {.count = 100}));
  EXPECT_FALSE(scope.is_lost());
  EXPECT_FALSE(scope.Includes(3, world, {.operation = Operation::kSend, .count = 100}));
  EXPECT_TRUE(scope.is_lost());
  EXPECT_FALSE(scope.Includes(1, world, {.count = 100}));
}

TEST(DefaultScopeTest, HoldsForTheCommunicatorOfAllRanks) {
  const CommFacts four{.name = "", .ranks = 4};
  DefaultScope scope(4);
  EXPECT_TRUE(scope.Includes(1, four, {.count = 100}));
  DefaultScope larger_job(8);
  EXPECT_FALSE(larger_job.Includes(1, four, {.count = 100}));
  EXPECT_TRUE(larger_job.is_lost());
}

}  // namespace
}  // namespace onebit::preload
