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
const CallPolicy::ScopeResult kHolds = [] { return true; };

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
    reasons.push_back(policy->Decide({.count = 10}, std::nullopt, kHolds).reason);
    policy->Decide({.count = 20}, std::nullopt, kHolds);
  }
  EXPECT_EQ(reasons, (std::vector<Reason>{Reason::kNoCycle, Reason::kNoCycle, Reason::kStart,
                                          Reason::kStart, Reason::kCompressed}));
  EXPECT_EQ(policy->elements(), 30u);
}

TEST_F(CallPolicyTest, ABrokenCycleEndsItsTensors) {
  const auto policy = Make();
  for (int step = 0; step < 10; ++step) {
    policy->Decide({.count = 10}, std::nullopt, kHolds);
    policy->Decide({.count = 20}, std::nullopt, kHolds);
  }
  EXPECT_EQ(policy->elements(), 30u);
  const Decision decision = policy->Decide({.count = 30}, std::nullopt, kHolds);
  EXPECT_EQ(decision.reason, Reason::kNoCycle);
  // The cycle was found at its second tensor, which therefore has the first number.
  EXPECT_EQ(decision.ended, (std::vector<uint64_t>{1, 0}));
}

TEST_F(CallPolicyTest, NamedTensorsNeedNoCycle) {
  const auto policy = Make();
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(policy->Decide({.count = 10}, 7, kHolds).reason, Reason::kStart);
  }
  const Decision first = policy->Decide({.count = 10}, 7, kHolds);
  EXPECT_EQ(first.reason, Reason::kCompressed);
  EXPECT_EQ(policy->Decide({.count = 10}, 8, kHolds).reason, Reason::kStart);
  const Decision changed = policy->Decide({.count = 11}, 7, kHolds);
  EXPECT_EQ(changed.reason, Reason::kStart);
  EXPECT_EQ(changed.ended, (std::vector<uint64_t>{first.tensor}));
}

TEST_F(CallPolicyTest, CallsWithoutResidualsNeedNoTensor) {
  Rules rules;
  ParseRules("op=alltoall:int8", &rules);
  CallPolicy policy(rules, "world", 4, kPlenty);
  CallFacts call{.operation = Operation::kAllToAll, .count = 10};
  const Decision first = policy.Decide(call, std::nullopt, kHolds);
  EXPECT_EQ(first.reason, Reason::kCompressed);
  EXPECT_TRUE(first.may_repeat);
  call.count = 20;
  EXPECT_NE(policy.Decide(call, std::nullopt, kHolds).tensor, first.tensor);
  call.count = 10;
  EXPECT_EQ(policy.Decide(call, std::nullopt, kHolds).tensor, first.tensor);
  EXPECT_EQ(policy.elements(), 0u);
  // Each shape has memory of its own.
  call.operation = Operation::kAllToAll;
  for (call.count = 1; call.count <= 4096; ++call.count) {
    EXPECT_EQ(policy.Decide(call, std::nullopt, kHolds).reason, Reason::kCompressed);
  }
  EXPECT_EQ(policy.Decide(call, std::nullopt, kHolds).reason, Reason::kNoRoom);
}

TEST_F(CallPolicyTest, ShapesOfMessagesAreNumberedByDirection) {
  Rules rules;
  ParseRules("op=sendrecv:fp4", &rules);
  CallPolicy policy(rules, "world", 4096, kPlenty);
  const uint64_t most = CallPolicy::MostMessageShapes(4096);
  EXPECT_EQ(most, 8u);
  CallFacts call{.operation = Operation::kRecv};
  for (call.count = 1; call.count <= most; ++call.count) {
    const Decision decision = policy.DecideMessage(call, 1);
    EXPECT_EQ(decision.reason, Reason::kCompressed);
    EXPECT_EQ(decision.tensor, call.count - 1);
  }
  EXPECT_EQ(policy.DecideMessage(call, 1).reason, Reason::kNoRoom);
  EXPECT_EQ(policy.DecideMessage(call, 2).tensor, 0u);
  call.operation = Operation::kSend;
  EXPECT_EQ(policy.DecideMessage(call, 1).tensor, 0u);
  call = {.operation = Operation::kRecv, .count = 3};
  EXPECT_EQ(policy.DecideMessage(call, 1).tensor, 2u);
  EXPECT_EQ(CallPolicy::MostMessageShapes(100'000), 0u);
  EXPECT_EQ(CallPolicy::MostMessageShapes(8), 256u);
  call.type = DataType::kInt32;
  EXPECT_EQ(policy.DecideMessage(call, 3).reason, Reason::kNoRule);
}

TEST_F(CallPolicyTest, NamesUseAll64Bits) {
  const auto policy = Make();
  const uint64_t high = uint64_t{1} << 63;
  EXPECT_NE(policy->Decide({.count = 10}, 7, kHolds).tensor,
            policy->Decide({.count = 10}, 7 | high, kHolds).tensor);
}

TEST_F(CallPolicyTest, NamedTensorsMayComeInAnyOrder) {
  const auto policy = Make();
  uint64_t tensors[2] = {};
  for (const uint64_t id : {0, 1, 1, 0, 0, 1}) {
    const Decision decision = policy->Decide({.count = 10}, id, kHolds);
    tensors[id] = decision.tensor;
    EXPECT_TRUE(decision.ended.empty());
  }
  EXPECT_NE(tensors[0], tensors[1]);
  EXPECT_EQ(policy->elements(), 20u);
}

TEST_F(CallPolicyTest, AnotherCodecEndsATensor) {
  const auto policy = Make();
  const Compression int8{.codec = onebitCodecInt8, .start = 0};
  const Decision first = policy->Decide({.count = 10}, 7, kHolds, int8);
  EXPECT_EQ(first.reason, Reason::kCompressed);
  EXPECT_EQ(first.compression, int8);
  EXPECT_TRUE(policy->Decide({.count = 10}, 7, kHolds, int8).ended.empty());
  const Decision changed = policy->Decide({.count = 10}, 7, kHolds);
  EXPECT_EQ(changed.reason, Reason::kStart);
  EXPECT_EQ(changed.ended, (std::vector<uint64_t>{first.tensor}));
  EXPECT_NE(changed.tensor, first.tensor);
}

TEST_F(CallPolicyTest, ResidualsHaveALimit) {
  const auto policy = Make(25);
  Reason last[2] = {};
  for (int step = 0; step < 10; ++step) {
    last[0] = policy->Decide({.count = 10}, std::nullopt, kHolds).reason;
    last[1] = policy->Decide({.count = 20}, std::nullopt, kHolds).reason;
  }
  EXPECT_EQ(last[0], Reason::kNoRoom);  // the cycle was found at the other one
  EXPECT_EQ(last[1], Reason::kCompressed);
  EXPECT_EQ(policy->elements(), 20u);
}

TEST_F(CallPolicyTest, CallsWithoutARuleAreNoPartOfTheCycle) {
  const auto policy = Make();
  Reason reason = Reason::kNoRule;
  for (int step = 0; step < 20; ++step) {
    reason = policy->Decide({.count = 10}, std::nullopt, kHolds).reason;
    policy->Decide({.type = DataType::kInt64, .count = 1 + static_cast<uint64_t>(step)},
                   std::nullopt, kHolds);
  }
  EXPECT_EQ(reason, Reason::kCompressed);
}

class DefaultRuleTest : public CallPolicyTest {
 protected:
  DefaultRuleTest() : CallPolicyTest("default") {}

  // A step of two tensors. Returns what became of the first.
  Reason Step(CallPolicy* policy) {
    constexpr uint64_t kMiB = 1 << 18;  // elements
    const Decision decision = policy->Decide({.count = kMiB}, std::nullopt, result_);
    exchanges_ += decision.asks_scope;
    exchanges_ += policy->Decide({.count = 2 * kMiB}, std::nullopt, result_).asks_scope;
    return decision.reason;
  }

  int exchanges_ = 0;
  int results_ = 0;
  std::optional<bool> holds_ = true;
  const CallPolicy::ScopeResult result_ = [this] {
    ++results_;
    return holds_;
  };
};

TEST_F(DefaultRuleTest, RanksAgreeHalfwayThroughTheStart) {
  const auto policy = Make();
  int steps = 0;
  while (Step(policy.get()) != Reason::kCompressed) {
    ++steps;
    // The cycle was found at the second call of the second tensor, whose tenth call asks.
    EXPECT_EQ(exchanges_, steps >= 12 ? 1 : 0) << steps;
    EXPECT_EQ(results_, steps >= 22 ? 1 : 0) << steps;
    ASSERT_LT(steps, 100);
  }
  EXPECT_EQ(steps, 22);
  for (int step = 0; step < 50; ++step) EXPECT_EQ(Step(policy.get()), Reason::kCompressed);
  EXPECT_EQ(exchanges_, 1);
  EXPECT_EQ(results_, 1);
}

TEST_F(DefaultRuleTest, NothingIsCompressedIfItHoldsNotForAll) {
  holds_ = false;
  const auto policy = Make();
  for (int step = 0; step < 22; ++step) EXPECT_NE(Step(policy.get()), Reason::kOtherComm);
  for (int step = 0; step < 50; ++step) EXPECT_EQ(Step(policy.get()), Reason::kOtherComm);
  EXPECT_EQ(results_, 1);
  EXPECT_EQ(policy->elements(), 0u);
}

// As within a group of NCCL that has not ended.
TEST_F(DefaultRuleTest, TheStartLastsUntilTheResultIsKnown) {
  holds_ = std::nullopt;
  const auto policy = Make();
  Reason last = Reason::kNoRule;
  for (int step = 0; step < 40; ++step) last = Step(policy.get());
  EXPECT_EQ(last, Reason::kStart);
  EXPECT_EQ(exchanges_, 1);
  holds_ = true;
  Step(policy.get());  // the second tensor has asked
  EXPECT_EQ(Step(policy.get()), Reason::kCompressed);
}

// A call of another tensor would wait for an exchange that has begun a moment ago.
TEST_F(DefaultRuleTest, OnlyTheTensorThatHasAskedLooksAtTheResult) {
  const auto policy = Make();
  const auto numbered = [&] { return policy->Decide({.count = 1 << 18}, 7, result_).reason; };
  for (int call = 0; call < 30; ++call) numbered();
  EXPECT_EQ(numbered(), Reason::kCompressed);
  EXPECT_EQ(results_, 1);
  for (int step = 0; step < 15; ++step) Step(policy.get());  // one answer serves all
  EXPECT_EQ(exchanges_, 0);
  policy->Decide({.count = 3 << 20}, std::nullopt, result_);
  while (exchanges_ == 0) Step(policy.get());
  EXPECT_EQ(numbered(), Reason::kCompressed);
  EXPECT_EQ(results_, 1);
}

TEST_F(DefaultRuleTest, AnExchangeThatCannotBeMadeIsAskedForAgain) {
  const auto policy = Make();
  while (exchanges_ == 0) Step(policy.get());
  policy->AskAgain();
  Step(policy.get());
  EXPECT_EQ(exchanges_, 2);
  for (int step = 0; step < 12; ++step) Step(policy.get());
  EXPECT_EQ(Step(policy.get()), Reason::kCompressed);
  EXPECT_EQ(results_, 1);
}

TEST_F(CallPolicyTest, TensorsThatChangeForEverComeToAnEnd) {
  const auto policy = Make();
  const Compression plain{.codec = onebitCodecInt8, .has_feedback = false, .start = 0};
  Reason last = Reason::kNoRule;
  int compressed = 0;
  for (uint64_t call = 0; call < 10'000; ++call) {
    last = policy->Decide({.count = 10 + call % 2}, 7, kHolds, plain).reason;
    compressed += last == Reason::kCompressed ? 1 : 0;
  }
  EXPECT_EQ(last, Reason::kNoRoom);
  EXPECT_EQ(compressed, 4096);
}

TEST_F(DefaultRuleTest, ABrokenCycleNeedsANewAgreement) {
  const auto policy = Make();
  for (int step = 0; step < 30; ++step) Step(policy.get());
  EXPECT_EQ(exchanges_, 1);
  policy->Decide({.count = 3 << 20}, std::nullopt, result_);
  holds_ = false;
  Reason last = Reason::kNoRule;
  for (int step = 0; step < 60; ++step) last = Step(policy.get());
  EXPECT_EQ(exchanges_, 2);
  EXPECT_EQ(results_, 2);
  EXPECT_EQ(last, Reason::kOtherComm);
}

TEST_F(DefaultRuleTest, AnAskedCodecNeedsNoAgreement) {
  const auto policy = Make();
  const Compression int8{.codec = onebitCodecInt8, .start = 0};
  EXPECT_EQ(policy->Decide({.count = 1 << 18}, 7, result_, int8).reason, Reason::kCompressed);
  EXPECT_EQ(results_, 0);
}

TEST_F(CallPolicyTest, NamedCommunicatorsNeedNoAgreement) {
  const auto policy = Make();
  for (int step = 0; step < 30; ++step) {
    EXPECT_FALSE(policy->Decide({.count = 10}, std::nullopt, nullptr).asks_scope);
  }
}

TEST(DefaultScopeTest, HoldsForOneCommunicator) {
  DefaultScope scope(0);
  const CommFacts world{.name = "", .ranks = 4};
  scope.Observe(1, world, {.count = 100});
  // A communicator of one rank, a barrier, and counts of tokens.
  scope.Observe(2, {.name = "", .ranks = 1}, {.count = 100});
  scope.Observe(3, world, {.count = 1});
  scope.Observe(3, world, {.type = DataType::kInt64, .count = 100});
  EXPECT_TRUE(scope.Holds(1));
  EXPECT_FALSE(scope.Holds(3));
  EXPECT_FALSE(scope.is_lost());
  scope.Observe(3, world, {.operation = Operation::kSend, .count = 100});
  EXPECT_TRUE(scope.is_lost());
  EXPECT_FALSE(scope.Holds(1));
}

TEST(DefaultScopeTest, HoldsForTheCommunicatorOfAllRanks) {
  const CommFacts four{.name = "", .ranks = 4};
  DefaultScope scope(4);
  scope.Observe(1, four, {.count = 100});
  EXPECT_TRUE(scope.Holds(1));
  DefaultScope larger_job(8);
  larger_job.Observe(1, four, {.count = 100});
  EXPECT_FALSE(larger_job.Holds(1));
}

}  // namespace
}  // namespace onebit::preload
