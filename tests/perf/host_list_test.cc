// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The hosts that --hosts of onebit_run names. launcher_test.py has the errors.
#include "perf/hosts/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perf/common/tool_error.h"

namespace onebit::perf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;

auto Is(const std::string& name, int ranks) {
  return AllOf(Field(&HostRanks::name, name), Field(&HostRanks::ranks, ranks));
}

TEST(HostListTest, ReadsNamesUsersAndAddresses) {
  EXPECT_THAT(
      ParseHostList("a:4,me@b.example:2,c,[fd00::1]:8,[::1]"),
      ElementsAre(Is("a", 4), Is("me@b.example", 2), Is("c", 1), Is("fd00::1", 8), Is("::1", 1)));
  EXPECT_EQ(WithoutUser("me@b.example"), "b.example");
  EXPECT_EQ(WithoutUser("a"), "a");
}

TEST(HostListTest, TakesTheFirstRanks) {
  std::vector<HostRanks> hosts = ParseHostList("a:4,b:4,c:4");
  EXPECT_EQ(CountRanks(hosts), 12);
  TakeRanks(6, &hosts);
  EXPECT_THAT(hosts, ElementsAre(Is("a", 4), Is("b", 2)));
  EXPECT_THROW(TakeRanks(7, &hosts), UsageError);
}

TEST(HostListTest, KnowsThisHost) {
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_TRUE(IsThisHost("127.0.1.1"));
  EXPECT_FALSE(IsThisHost("192.0.2.1"));  // for documentation only
}

}  // namespace
}  // namespace onebit::perf
