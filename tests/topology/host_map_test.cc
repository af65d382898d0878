// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Numbers of hosts and local ranks, whatever the order of the ranks.
#include "topology/host_map.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

// A host for each letter.
HostMap MapOf(const std::string& letters) {
  std::vector<std::string> names;
  for (const char letter : letters) names.emplace_back(1, letter);
  return HostMap(names);
}

std::vector<uint32_t> RanksOn(const HostMap& map, uint32_t host) {
  const auto ranks = map.RanksOn(host);
  return {ranks.begin(), ranks.end()};
}

using Ranks = std::vector<uint32_t>;

TEST(HostMapTest, RanksWithoutNamesAreOnOneHost) {
  for (const HostMap& map : {HostMap(3), MapOf("aaa")}) {
    EXPECT_EQ(map.ranks(), 3u);
    EXPECT_EQ(map.hosts(), 1u);
    EXPECT_EQ(map.rails(), 3u);
    EXPECT_TRUE(map.is_even());
    EXPECT_FALSE(map.has_levels());
    EXPECT_EQ(RanksOn(map, 0), (Ranks{0, 1, 2}));
    EXPECT_EQ(map.LocalRankOf(2), 2u);
  }
  EXPECT_EQ(HostMap().ranks(), 1u);
}

TEST(HostMapTest, HostsOfEqualSizeAreEven) {
  const HostMap map = MapOf("aabbcc");
  EXPECT_EQ(map.hosts(), 3u);
  EXPECT_EQ(map.rails(), 2u);
  EXPECT_TRUE(map.is_even());
  EXPECT_TRUE(map.has_levels());
  EXPECT_EQ(RanksOn(map, 1), (Ranks{2, 3}));
  EXPECT_EQ(map.HostOf(5), 2u);
  EXPECT_EQ(map.LocalRankOf(5), 1u);
}

TEST(HostMapTest, TheSmallestHostLimitsTheRails) {
  const HostMap map = MapOf("aaaabbc");
  EXPECT_EQ(map.hosts(), 3u);
  EXPECT_EQ(map.rails(), 1u);
  EXPECT_FALSE(map.is_even());
  EXPECT_TRUE(map.has_levels());
  EXPECT_EQ(RanksOn(map, 0), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(RanksOn(map, 2), (Ranks{6}));
  // As many ranks as even hosts would have.
  EXPECT_FALSE(MapOf("aaab").is_even());
}

TEST(HostMapTest, RanksMayTakeTurnsOnHosts) {
  const HostMap map = MapOf("babab");
  EXPECT_EQ(map.hosts(), 2u);
  EXPECT_EQ(map.rails(), 2u);
  // The host of rank 0 is the first one.
  EXPECT_EQ(RanksOn(map, 0), (Ranks{0, 2, 4}));
  EXPECT_EQ(RanksOn(map, 1), (Ranks{1, 3}));
  EXPECT_EQ(map.HostOf(3), 1u);
  EXPECT_EQ(map.LocalRankOf(3), 1u);
}

TEST(HostMapTest, PartnersHaveTheSameLocalRank) {
  const HostMap map = MapOf("aaabcc");
  EXPECT_EQ(map.PartnerOn(0, 1), 1u);  // itself
  EXPECT_EQ(map.PartnerOn(2, 1), 5u);
  EXPECT_EQ(map.PartnerOn(0, 5), 1u);
  EXPECT_EQ(map.PartnerOn(2, 2), 4u);  // counted round
  for (uint32_t rank = 0; rank < 6; ++rank) EXPECT_EQ(map.PartnerOn(1, rank), 3u);
}

TEST(HostMapTest, OneRankAHostMakesNoLevels) {
  const HostMap map = MapOf("cab");
  EXPECT_EQ(map.hosts(), 3u);
  EXPECT_EQ(map.rails(), 1u);
  EXPECT_TRUE(map.is_even());
  EXPECT_FALSE(map.has_levels());
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(map.HostOf(rank), rank);
    EXPECT_EQ(map.LocalRankOf(rank), 0u);
  }
}

TEST(HostMapTest, ManyRanksAreNotComparedInPairs) {
  constexpr uint32_t kMany = 65'536;
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < kMany; ++rank) names.push_back(std::to_string(rank / 2));
  const HostMap map(names);
  EXPECT_EQ(map.hosts(), kMany / 2);
  EXPECT_EQ(RanksOn(map, kMany / 2 - 1), (Ranks{kMany - 2, kMany - 1}));
}

TEST(HostMapTest, SizesAreInTheOrderOfHosts) {
  EXPECT_EQ(MapOf("bacabb").Sizes(), (std::vector<float>{3, 2, 1}));
  EXPECT_EQ(HostMap(3).Sizes(), std::vector<float>{3});
}

TEST(HostMapTest, TextSaysHowManyRanksHostsHave) {
  EXPECT_EQ(HostMap().Text(), "1 host of 1 rank");
  EXPECT_EQ(MapOf("aaaa").Text(), "1 host of 4 ranks");
  EXPECT_EQ(MapOf("abc").Text(), "3 hosts of 1 rank");
  EXPECT_EQ(MapOf("abab").Text(), "2 hosts of 2 ranks");
  EXPECT_EQ(MapOf("aaab").Text(), "2 hosts of 3 and 1 ranks");
  EXPECT_EQ(MapOf("aaaabbc").Text(), "3 hosts of 4, 2 and 1 ranks");
  EXPECT_EQ(MapOf("aabcdefgh").Text(), "8 hosts of 2, 1, 1, 1, 1, 1, 1 and 1 ranks");
  EXPECT_EQ(MapOf("aabcdefghi").Text(), "9 hosts of 2, 1, 1, 1, 1, 1, 1, 1, ... ranks");
}

}  // namespace
}  // namespace onebit
