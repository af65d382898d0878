// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hosts of communicators of threads, and of communicators that are made of these.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

// A rank for each letter, which is its host's word.
std::vector<CommOptions> OptionsOf(const std::string& letters) {
  std::vector<CommOptions> options;
  for (const char letter : letters) {
    options.push_back(kPatient);
    options.back().host = letter;
  }
  return options;
}

// Number of hosts, that of this rank's, and ranks on it.
using Place = std::array<uint64_t, 3>;

Place PlaceOf(onebitComm_t comm) {
  const onebitCommStats_t stats = StatsOf(comm);
  return {stats.hosts, stats.host, stats.host_ranks};
}

TEST(KeptHostsTest, StatsSayWhereARankIs) {
  const CommGroup group(OptionsOf("baab"));
  EXPECT_EQ(PlaceOf(group.comm(0)), (Place{2, 0, 2}));
  EXPECT_EQ(PlaceOf(group.comm(1)), (Place{2, 1, 2}));
  EXPECT_EQ(PlaceOf(group.comm(3)), (Place{2, 0, 2}));
  const CommGroup one_host(3);
  EXPECT_EQ(PlaceOf(one_host.comm(2)), (Place{1, 0, 3}));
}

TEST(KeptHostsTest, SuccessiveRanksAreAHostIfACountSaysSo) {
  CommOptions options = kPatient;
  options.host_ranks = 3;
  const CommGroup group(5, options);
  EXPECT_EQ(PlaceOf(group.comm(2)), (Place{2, 0, 3}));
  EXPECT_EQ(PlaceOf(group.comm(3)), (Place{2, 1, 2}));
}

// Ranks 1, 3 and 4 form a communicator in reverse order, then the last two of it another one.
TEST(KeptHostsTest, ASplitKeepsThem) {
  CommOptions options = kPatient;
  options.host_ranks = 2;
  CommGroup group(5, options);
  std::vector<Place> places(5);
  std::vector<Place> later(5);
  group.Run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    onebitComm_t comm = nullptr;
    const bool is_in = rank == 1 || rank >= 3;
    ASSERT_EQ(
        onebitCommSplit(group.comm(rank), is_in ? 0 : ONEBIT_SPLIT_NOCOLOR, -rank, &comm, nullptr),
        onebitSuccess)
        << onebitGetLastError(nullptr);
    if (!is_in) return;
    const UniqueComm first(comm);
    places[r] = PlaceOf(comm);
    onebitComm_t next = nullptr;
    ASSERT_EQ(onebitCommSplit(comm, rank == 4 ? 1 : 0, rank, &next, nullptr), onebitSuccess)
        << onebitGetLastError(nullptr);
    const UniqueComm second(next);
    later[r] = PlaceOf(next);
  });
  EXPECT_EQ(places[4], (Place{3, 0, 1}));
  EXPECT_EQ(places[3], (Place{3, 1, 1}));
  EXPECT_EQ(places[1], (Place{3, 2, 1}));
  EXPECT_EQ(later[1], (Place{2, 0, 1}));
  EXPECT_EQ(later[3], (Place{2, 1, 1}));
  EXPECT_EQ(later[4], (Place{1, 0, 1}));
}

TEST(KeptHostsTest, AShrinkKeepsThem) {
  CommGroup group(OptionsOf("abcabc"));
  std::vector<Place> places(6);
  const std::vector<int> excluded = {0, 2};
  group.Run([&](int rank) {
    if (rank == 0 || rank == 2) return;
    onebitComm_t comm = nullptr;
    ASSERT_EQ(onebitCommShrink(group.comm(rank), excluded.data(), 2, &comm, nullptr,
                               ONEBIT_SHRINK_DEFAULT),
              onebitSuccess)
        << onebitGetLastError(nullptr);
    const UniqueComm made(comm);
    places[static_cast<size_t>(rank)] = PlaceOf(comm);
  });
  EXPECT_EQ(places[1], (Place{3, 0, 2}));  // b
  EXPECT_EQ(places[4], (Place{3, 0, 2}));
  EXPECT_EQ(places[3], (Place{3, 1, 1}));  // a
  EXPECT_EQ(places[5], (Place{3, 2, 1}));  // c
}

}  // namespace
}  // namespace onebit::testing
