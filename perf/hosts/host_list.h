// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The hosts of a job and how many ranks each runs, as --hosts says: "a:4,user@b:4,[fd00::1]:2".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace onebit::perf {

struct HostRanks {
  std::string name;  // as ssh takes it, without brackets: "a", "user@b", "fd00::1"
  int ranks = 1;
};

// A host without a number runs one rank. Throws UsageError.
std::vector<HostRanks> ParseHostList(std::string_view list);

// Keeps the first `ranks` ranks and the hosts that run them. Throws UsageError if there are fewer.
void TakeRanks(int ranks, std::vector<HostRanks>* hosts);

int CountRanks(const std::vector<HostRanks>& hosts);

// The host without the user.
std::string_view WithoutUser(std::string_view name);

// True if the name is that of this host: it leads to an address of one of its interfaces.
bool IsThisHost(std::string_view name);

}  // namespace onebit::perf
