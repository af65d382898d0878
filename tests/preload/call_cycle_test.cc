// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tensors told apart by the order of calls.
#include "plugins/nccl_preload/call_cycle.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace onebit::preload {
namespace {

CallFacts CallOf(uint64_t count) { return {.count = count}; }

// Makes the calls of a step, one for each letter, `steps` times. Returns the numbers of the last
// step's calls, -1 for those that have none.
std::vector<int> Repeat(CallCycle* cycle, const std::string& step, int steps) {
  std::vector<int> numbers;
  for (int i = 0; i < steps; ++i) {
    numbers.clear();
    for (const char letter : step) {
      const auto number = cycle->Next(CallOf(static_cast<uint64_t>(letter)));
      numbers.push_back(number ? static_cast<int>(*number) : -1);
    }
  }
  return numbers;
}

TEST(CallCycleTest, ACycleIsBelievedOnceItWasSeenTwice) {
  CallCycle cycle;
  EXPECT_EQ(Repeat(&cycle, "abc", 1), (std::vector<int>{-1, -1, -1}));
  EXPECT_EQ(Repeat(&cycle, "abc", 1), (std::vector<int>{-1, -1, 2}));
  EXPECT_EQ(Repeat(&cycle, "abc", 1), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(Repeat(&cycle, "abc", 100), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(cycle.period(), 3u);
  EXPECT_EQ(cycle.generation(), 0u);
}

// DistributedDataParallel builds its buckets anew after the first step.
TEST(CallCycleTest, AStepBeforeTheCycleDoesNotMatter) {
  CallCycle cycle;
  Repeat(&cycle, "x", 1);
  EXPECT_EQ(Repeat(&cycle, "ab", 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(cycle.generation(), 0u);
}

TEST(CallCycleTest, EqualLayersDoNotHideTheStep) {
  for (const std::string step : {"aaaaaaaaaaaab", "baaaaaaaaaaaac", "abababababac", "aabaabaac"}) {
    CallCycle cycle;
    Repeat(&cycle, step, 12);
    EXPECT_EQ(cycle.period(), step.size()) << step;
    const uint64_t generation = cycle.generation();
    Repeat(&cycle, step, 1000);
    EXPECT_EQ(cycle.generation(), generation) << step;
  }
}

TEST(CallCycleTest, AnotherCallBreaksTheCycle) {
  CallCycle cycle;
  Repeat(&cycle, "abc", 10);
  EXPECT_EQ(Repeat(&cycle, "abx", 1), (std::vector<int>{0, 1, -1}));
  EXPECT_EQ(cycle.generation(), 1u);
  EXPECT_EQ(cycle.period(), 0u);
}

TEST(CallCycleTest, AChangeIsLearned) {
  CallCycle cycle;
  for (const std::string step : {"abc", "de", "fghij", "k", "lmnopqrst"}) {
    const uint64_t generation = cycle.generation();
    Repeat(&cycle, step, 70);
    EXPECT_EQ(cycle.period(), step.size()) << step;
    EXPECT_LE(cycle.generation(), generation + 1) << step;
  }
}

TEST(CallCycleTest, CallsWithoutACycleHaveNoNumbers) {
  CallCycle cycle;
  for (uint64_t count = 1; count < 50'000; ++count) {
    EXPECT_FALSE(cycle.Next(CallOf(count)).has_value());
  }
}

// Numbers may be wrong only while a step is being learned: within a generation one tensor has one
// number, once the true period was found.
TEST(CallCycleTest, RandomStepsAreLearned) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t length = 1 + random() % 40;
    const unsigned letters = 1 + random() % 6;
    std::string step;
    for (size_t i = 0; i < length; ++i) step += static_cast<char>('a' + random() % letters);
    CallCycle cycle;
    Repeat(&cycle, step, 60);
    // The step may be a repetition itself.
    ASSERT_GT(cycle.period(), 0u) << step;
    EXPECT_EQ(step.size() % cycle.period(), 0u) << step;
    const std::vector<int> numbers = Repeat(&cycle, step, 1);
    EXPECT_EQ(Repeat(&cycle, step, 1), numbers) << step;
  }
}

}  // namespace
}  // namespace onebit::preload
