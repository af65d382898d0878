// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The first host of Slurm's notation, and invalid lists.
#include "comm/slurm_hostlist.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

namespace onebit {
namespace {

TEST(SlurmHostlistTest, FindsTheFirstHost) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"login", "login"},
      {"n1,n2", "n1"},
      {"a.example.org,b", "a.example.org"},
      {"n[1-4]", "n1"},
      {"n[01-04,7],x", "n01"},
      {"n[007]", "n007"},
      {"n[9-10]", "n9"},
      {"n[7,1-3]", "n7"},  // as written: Slurm sorts lists itself
      {"rack[1-2]n[001-016]", "rack1n001"},
      {"rack[1-2]n[001-016]-ib,login[1-2]", "rack1n001-ib"},
      {"[1-3]", "1"},
      {"gpu_a-[5-5]", "gpu_a-5"},
  };
  for (const auto& [list, first] : kCases) {
    const auto host = FirstSlurmHost(list);
    ASSERT_TRUE(host.ok()) << list << ": " << host.status().text();
    EXPECT_EQ(host.value(), first) << list;
  }
}

TEST(SlurmHostlistTest, RefusesWhatIsNoList) {
  const std::string long_name(300, 'n');
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"", "expected a host name at character 1"},
      {",n1", "expected a host name at character 1"},
      {"n1,", "expected a host name at character 4"},
      {"n[", "expected a digit at character 3"},
      {"n[1", "expected ',' or ']' at character 4"},
      {"n[1-", "expected a digit at character 5"},
      {"n[1-2", "expected ',' or ']' at character 6"},
      {"n[]", "expected a digit at character 3"},
      {"n[1,]", "expected a digit at character 5"},
      {"n[1-[2-3]]", "expected a digit at character 5"},
      {"n[4-1]", "a range that does not run backwards"},
      {"n[a-b]", "expected a digit at character 3"},
      {"n]", "at character 2"},
      {"n1 n2", "at character 3"},
      {"../n1", "at character 3"},
      {"n1,x[3-2]", "a range that does not run backwards"},  // checks more than the first entry
      {"n[1234567890123456789]", "at most 18 digits"},
      {long_name, "at most 255 characters"},
  };
  for (const auto& [list, text] : kCases) {
    const auto host = FirstSlurmHost(list);
    ASSERT_FALSE(host.ok()) << list;
    EXPECT_EQ(host.status().code(), Code::kInvalidUsage);
    EXPECT_NE(host.status().text().find(text), std::string::npos) << host.status().text();
  }
}

}  // namespace
}  // namespace onebit
