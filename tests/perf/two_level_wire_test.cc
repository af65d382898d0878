// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of calls in two levels against sums worked out by hand.
#include "perf/common/two_level_wire.h"

#include <gtest/gtest.h>

#include <vector>

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
  TwoLevelWire wire = UnevenHosts();
  EXPECT_EQ(MaxTwoLevelMessages(wire), 4u);
  // Each of two rails has two hosts: 2 messages to and from the other local rank, 2 on the rail.
  constexpr uint32_t kAlternating[] = {0, 1, 0, 1};
  wire.hosts = HostLayout(kAlternating);
  EXPECT_EQ(MaxTwoLevelMessages(wire), 6u);
}

// On the first host rank 0 is the partner of 0, 2, 3 and 5, and rank 1 of 1 and 4. Rank 2 is that
// of all. On the last host rank 3 is that of 0, 2 and 3, rank 4 of 1 and 4, and rank 5 of itself.
TwoLevelWire ThreeHosts(TwoLevelCall call) {
  constexpr uint32_t kHosts[] = {0, 0, 1, 2, 2, 2};
  return {.call = call, .count = 100, .hosts = HostLayout(kHosts)};
}

void ExpectBytes(const TwoLevelWire& wire, const std::vector<TwoLevelBytes>& expected) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(TwoLevelBytesOf(wire, rank).inside, expected[rank].inside) << rank;
    EXPECT_EQ(TwoLevelBytesOf(wire, rank).network, expected[rank].network) << rank;
  }
}

constexpr PacketRule kFp4 = {
    .block = 128, .element_bits = 4, .scale_bytes = 2, .code_alignment = 16};
constexpr uint64_t kPart = 64 + 400;
constexpr uint64_t kPacket = 64 + 16 + 50;
constexpr uint64_t kVerdict = 64;

TEST(TwoLevelWireTest, RanksOfAHostGiveTheirPartsOfASumToPartners) {
  TwoLevelWire wire = ThreeHosts(TwoLevelCall::kReduceScatter);
  ExpectBytes(wire, {{2 * kPart, 3 * kPart},
                     {4 * kPart, kPart},
                     {0, 5 * kPart},
                     {3 * kPart, 2 * kPart},
                     {4 * kPart, kPart},
                     {5 * kPart, 0}});
  EXPECT_EQ(MaxTwoLevelMessages(wire), 5u);
  wire.packet = kFp4;
  ExpectBytes(wire, {{2 * kPart + kVerdict, 3 * kPacket + 4 * kVerdict},
                     {4 * kPart + kVerdict, kPacket + 4 * kVerdict},
                     {0, 5 * kPacket + 5 * kVerdict},
                     {3 * kPart + 2 * kVerdict, 2 * kPacket + 3 * kVerdict},
                     {4 * kPart + 2 * kVerdict, kPacket + 3 * kVerdict},
                     {5 * kPart + 2 * kVerdict, 3 * kVerdict}});
  wire.packet->has_verdicts = false;
  EXPECT_EQ(TwoLevelBytesOf(wire, 5).all(), 5 * kPart);
}

TEST(TwoLevelWireTest, APartComesToEachHostOnceAndIsPassedOnThere) {
  TwoLevelWire wire = ThreeHosts(TwoLevelCall::kAllGather);
  ExpectBytes(wire, {{4 * kPart, 2 * kPart},
                     {2 * kPart, 2 * kPart},
                     {0, 2 * kPart},
                     {6 * kPart, 2 * kPart},
                     {4 * kPart, 2 * kPart},
                     {2 * kPart, 2 * kPart}});
  EXPECT_EQ(MaxTwoLevelMessages(wire), 8u);
  wire.packet = kFp4;
  EXPECT_EQ(TwoLevelBytesOf(wire, 3).inside, 6 * kPacket + 2 * kVerdict);
  EXPECT_EQ(TwoLevelBytesOf(wire, 3).network, 2 * kPacket + 3 * kVerdict);
  EXPECT_EQ(MaxTwoLevelBytes(wire), 8 * kPacket + 5 * kVerdict);
}

// The chunks of the two hosts after the root's have 64 and 36 elements. Ranks that share a host,
// and partners, send each other headers.
TEST(TwoLevelWireTest, ABroadcastLeavesTheRootsHostOnce) {
  constexpr uint64_t kFirst = 64 + 256;
  constexpr uint64_t kSecond = 64 + 144;
  constexpr uint64_t kBoth = kFirst + kSecond;
  TwoLevelWire wire = ThreeHosts(TwoLevelCall::kBroadcast);
  wire.root = 4;  // whose partners are 1 and 2
  ExpectBytes(wire, {{64, 3 * 64},
                     {kBoth + 64, kFirst + 2 * 64},
                     {0, kSecond + 5 * 64},
                     {2 * 64, 2 * 64},
                     {2 * kBoth + 2 * 64, kBoth},
                     {2 * 64, 2 * 64}});
  EXPECT_EQ(MaxTwoLevelMessages(wire), 8u);
  wire.segments = 2;
  EXPECT_EQ(MaxTwoLevelBytes(wire), 3 * (kBoth + 2 * 64) + 2 * 64);
}

}  // namespace
}  // namespace onebit::perf
