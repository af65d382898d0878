// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hosts of communicators of threads, and of communicators that are made of these.
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/comm_group.h"

namespace onebit::testing {
namespace {

TEST(KeptHostsTest, StatsSayWhereARankIs) {
  const CommGroup group(OnHosts("baab", kPatient));
  EXPECT_EQ(PlaceOf(group.comm(0)), (HostPlace{2, 0, 2}));
  EXPECT_EQ(PlaceOf(group.comm(1)), (HostPlace{2, 1, 2}));
  EXPECT_EQ(PlaceOf(group.comm(3)), (HostPlace{2, 0, 2}));
  const CommGroup one_host(3);
  EXPECT_EQ(PlaceOf(one_host.comm(2)), (HostPlace{1, 0, 3}));
}

TEST(KeptHostsTest, SuccessiveRanksAreAHostIfACountSaysSo) {
  CommOptions options = kPatient;
  options.host_ranks = 3;
  const CommGroup group(5, options);
  EXPECT_EQ(PlaceOf(group.comm(2)), (HostPlace{2, 0, 3}));
  EXPECT_EQ(PlaceOf(group.comm(3)), (HostPlace{2, 1, 2}));
}

// Ranks 1, 3 and 4 form a communicator in reverse order, then the last two of it another one.
TEST(KeptHostsTest, ASplitKeepsThem) {
  CommOptions options = kPatient;
  options.host_ranks = 2;
  CommGroup group(5, options);
  std::vector<HostPlace> places(5);
  std::vector<HostPlace> later(5);
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
  EXPECT_EQ(places[4], (HostPlace{3, 0, 1}));
  EXPECT_EQ(places[3], (HostPlace{3, 1, 1}));
  EXPECT_EQ(places[1], (HostPlace{3, 2, 1}));
  EXPECT_EQ(later[1], (HostPlace{2, 0, 1}));
  EXPECT_EQ(later[3], (HostPlace{2, 1, 1}));
  EXPECT_EQ(later[4], (HostPlace{1, 0, 1}));
}

TEST(KeptHostsTest, AShrinkKeepsThem) {
  CommGroup group(OnHosts("abcabc", kPatient));
  std::vector<HostPlace> places(6);
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
  EXPECT_EQ(places[1], (HostPlace{3, 0, 2}));  // b
  EXPECT_EQ(places[4], (HostPlace{3, 0, 2}));
  EXPECT_EQ(places[3], (HostPlace{3, 1, 1}));  // a
  EXPECT_EQ(places[5], (HostPlace{3, 2, 1}));  // c
}

}  // namespace
}  // namespace onebit::testing
