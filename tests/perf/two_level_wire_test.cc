// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of an allreduce in two levels against sums worked out by hand.
#include "perf/common/two_level_wire.h"

#include <gtest/gtest.h>

namespace onebit::perf {
namespace {

using model::HostLayout;

// A host of two ranks and one of a single rank have one rail, so there are two chunks: of 64 and 36
// elements.
TwoLevelWire UnevenHosts() {
  constexpr uint32_t kHosts[] = {0, 0, 1};
  return {.count = 100, .hosts = HostLayout(kHosts)};
}

TEST(TwoLevelWireTest, DenseSendsElementsInAllExchanges) {
  const TwoLevelWire wire = UnevenHosts();
  EXPECT_EQ(TwoLevelBytesOf(wire, 0).inside, 2 * 64u + 400);                    // exchange 4
  EXPECT_EQ(TwoLevelBytesOf(wire, 0).network, (64u + 4 * 36) + (64 + 4 * 64));  // 2 and 3
  EXPECT_EQ(TwoLevelBytesOf(wire, 1).inside, 2 * 64u + 400);                    // exchange 1
  EXPECT_EQ(TwoLevelBytesOf(wire, 1).network, 0u);
  EXPECT_EQ(TwoLevelBytesOf(wire, 2).inside, 0u);
  EXPECT_EQ(TwoLevelBytesOf(wire, 2).network, (64u + 4 * 64) + (64 + 4 * 36));
  EXPECT_EQ(MaxTwoLevelBytes(wire), 4 * 64u + 800);
}

TEST(TwoLevelWireTest, EverySegmentHasAHeader) {
  TwoLevelWire wire = UnevenHosts();
  wire.segments = 3;
  wire.element_bytes = 2;
  EXPECT_EQ(TwoLevelBytesOf(wire, 0).all(), 3 * 4 * 64u + 400);
}

// Scales of fp4 are two bytes for 128 elements, and codes begin at a multiple of 16 bytes.
TEST(TwoLevelWireTest, PacketsTravelInAllExchangesButTheFirst) {
  TwoLevelWire wire = UnevenHosts();
  wire.packet = {.block = 128, .element_bits = 4, .scale_bytes = 2, .code_alignment = 16};
  const uint64_t longer = 64 + 16 + 32;
  const uint64_t shorter = 64 + 16 + 18;
  EXPECT_EQ(TwoLevelBytesOf(wire, 0).inside, longer + shorter);
  EXPECT_EQ(TwoLevelBytesOf(wire, 0).network, longer + shorter);
  EXPECT_EQ(TwoLevelBytesOf(wire, 1).all(), 2 * 64u + 400);
  EXPECT_EQ(TwoLevelBytesOf(wire, 2).all(), longer + shorter);
}

TEST(TwoLevelWireTest, MessagesAreThoseOfTheBusiestRank) {
  EXPECT_EQ(MaxTwoLevelMessages(UnevenHosts().hosts), 4u);
  // Each of two rails has two hosts: 2 messages to and from the other local rank, 2 on the rail.
  constexpr uint32_t kAlternating[] = {0, 1, 0, 1};
  EXPECT_EQ(MaxTwoLevelMessages(HostLayout(kAlternating)), 6u);
}

}  // namespace
}  // namespace onebit::perf
