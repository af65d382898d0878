// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Words go before counts, and counts before machines.
#include "comm/host_claim.h"

#include <vector>

#include <gtest/gtest.h>

namespace onebit {
namespace {

std::string TextOf(const std::vector<HostClaim>& claims, uint64_t host_ranks = 0) {
  const Result<HostMap> map = MapHosts(claims, host_ranks);
  return map.ok() ? map.value().Text() : map.status().text();
}

TEST(HostClaimTest, MachinesAreHosts) {
  EXPECT_EQ(TextOf({{"", "m"}, {"", "n"}, {"", "m"}}), "2 hosts of 2 and 1 ranks");
  // Ranks of one process do not ask where it is.
  EXPECT_EQ(TextOf({{""}, {""}}), "1 host of 2 ranks");
}

TEST(HostClaimTest, ACountOfRanksGoesBeforeMachines) {
  const std::vector<HostClaim> claims = {{"", "m"}, {"", "n"}, {"", "m"}, {"", "n"}, {"", "m"}};
  EXPECT_EQ(TextOf(claims, 2), "3 hosts of 2, 2 and 1 ranks");
  EXPECT_EQ(TextOf(claims, 1), "5 hosts of 1 rank");
  EXPECT_EQ(TextOf(claims, 8), "1 host of 5 ranks");
  const Result<HostMap> map = MapHosts(claims, 2);
  ASSERT_TRUE(map.ok());
  for (uint32_t rank = 0; rank < 5; ++rank) EXPECT_EQ(map.value().HostOf(rank), rank / 2);
}

TEST(HostClaimTest, AWordGoesBeforeAllElse) {
  const std::vector<HostClaim> claims = {{"a", "m"}, {"b", "m"}, {"a", "n"}, {"a", "n"}};
  EXPECT_EQ(TextOf(claims), "2 hosts of 3 and 1 ranks");
  EXPECT_EQ(TextOf(claims, 1), "2 hosts of 3 and 1 ranks");
}

TEST(HostClaimTest, AWordOnSomeRanksOnlyNamesTwoOfThem) {
  const std::string advice =
      "; set it on all ranks, to the same word on those of one host, or on none";
  EXPECT_EQ(TextOf({{"a", "m"}, {"a", "m"}, {"", "m"}}),
            "ONEBIT_HOST differs between ranks: rank 0 has \"a\", rank 2 has none" + advice);
  EXPECT_EQ(TextOf({{"", "m"}, {"b", "m"}}, 1),
            "ONEBIT_HOST differs between ranks: rank 0 has none, rank 1 has \"b\"" + advice);
  EXPECT_EQ(MapHosts(std::vector<HostClaim>{{"", "m"}, {"b", "m"}}, 0).status().code(),
            Code::kMismatch);
}

}  // namespace
}  // namespace onebit
