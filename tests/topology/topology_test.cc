// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "topology/near_cores.h"
#include "topology/placement.h"

namespace onebit {
namespace {

uint32_t CountOf(const ProcessorSet& set) {
  return Placement{.machine = "", .processors = set}.processor_count();
}

TEST(PlacementTest, IsWhatTheKernelAllows) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const Placement here = PlacementOfThisThread();
  EXPECT_EQ(here.processor_count(), static_cast<uint32_t>(CPU_COUNT(&allowed)));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    const auto word = static_cast<size_t>(cpu) / 64;
    const bool is_here = word < here.processors.size() && (here.processors[word] >> cpu % 64 & 1);
    EXPECT_EQ(is_here, CPU_ISSET(cpu, &allowed) != 0) << "processor " << cpu;
  }
  EXPECT_FALSE(here.machine.empty());
}

TEST(PlacementTest, RanksShareProcessorsOfOneMachineOnly) {
  const Placement low{.machine = "a", .processors = {0b0011}};
  const Placement high{.machine = "a", .processors = {0b1100}};
  const Placement wide{.machine = "a", .processors = {0b0110, 1}};
  const Placement elsewhere{.machine = "b", .processors = {0b0011}};
  const std::vector<Placement> all = {low, high, wide, elsewhere, low};
  EXPECT_EQ(RanksSharing(low, all), 3u);
  EXPECT_EQ(RanksSharing(high, all), 2u);
  EXPECT_EQ(RanksSharing(wide, all), 4u);
  EXPECT_EQ(RanksSharing(elsewhere, all), 1u);
  const std::vector<Placement> large = {{.machine = "a", .processors = {0, 0b01}},
                                        {.machine = "a", .processors = {0b11, 0b11}},
                                        {.machine = "a", .processors = {0b11, 0b10}}};
  EXPECT_EQ(RanksSharing(large[0], large), 2u) << "processors from 64 on";
}

TEST(NearCoresTest, AreSomeOfWhatThisThreadMayUse) {
  const NearCores near = CoresNearThisThread();
  const Placement here = PlacementOfThisThread();
  EXPECT_GE(near.count, 1u);
  EXPECT_LE(near.count, CountOf(near.processors));
  for (size_t word = 0; word < near.processors.size(); ++word) {
    ASSERT_LT(word, here.processors.size());
    EXPECT_EQ(near.processors[word] & ~here.processors[word], 0u);
  }
}

TEST(NearCoresTest, ObeysAThreadThatIsBound) {
  const Placement here = PlacementOfThisThread();
  const auto word = static_cast<size_t>(
      std::find_if(here.processors.begin(), here.processors.end(), [](uint64_t w) { return w; }) -
      here.processors.begin());
  const int cpu = static_cast<int>(word * 64) + std::countr_zero(here.processors[word]);
  std::thread bound([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const NearCores near = CoresNearThisThread();
    EXPECT_EQ(near.count, 1u);
    EXPECT_EQ(CountOf(near.processors), 1u);
  });
  bound.join();
}

TEST(ThreadsToSpareTest, AreTheCoresThatTheRanksLeaveOver) {
  EXPECT_EQ(ThreadsToSpare(2, 4), 0u);
  EXPECT_EQ(ThreadsToSpare(4, 4), 0u);
  EXPECT_EQ(ThreadsToSpare(7, 4), 0u);
  EXPECT_EQ(ThreadsToSpare(8, 4), 1u);
  EXPECT_EQ(ThreadsToSpare(2, 1), 1u);
  EXPECT_EQ(ThreadsToSpare(64, 8), 3u);  // more do not pay
  EXPECT_EQ(ThreadsToSpare(0, 0), 0u);
}

}  // namespace
}  // namespace onebit
