// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Communicators derived from another one: their ranks, that they work, and the results when ranks
// disagree, fail or do not come. Ranks are threads, as onebitCommInitAll creates them and as
// processes would join.
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/join_ranks.h"
#include "tests/support/comm_group.h"
#include "tests/support/deadlines.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

enum class Kind { kInitAll, kJoined };

class RegroupTest : public ::testing::TestWithParam<Kind> {
 protected:
  static std::vector<UniqueComm> MakeGroup(int n) {
    if (GetParam() == Kind::kJoined) return JoinGroup(n);
    std::vector<UniqueComm> comms(static_cast<size_t>(n));
    EXPECT_EQ(MakeComms(comms), onebitSuccess);
    return comms;
  }
};

// Calls `call(rank)` for each of the ranks on its own thread.
std::vector<Outcome> CallRanks(const std::vector<int>& ranks,
                               const std::function<onebitResult_t(size_t rank)>& call) {
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back(
        [&, i] { outcomes[i] = CallHere([&] { return call(static_cast<size_t>(ranks[i])); }); });
  }
  threads.clear();
  return outcomes;
}

std::vector<int> AllOf(const std::vector<UniqueComm>& comms) {
  std::vector<int> ranks(comms.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Former ranks of a communicator's members, by new rank, as they report themselves.
std::vector<float> MembersOf(onebitComm_t comm, int former_rank) {
  int rank = 0;
  int count = 0;
  EXPECT_EQ(onebitCommUserRank(comm, &rank), onebitSuccess);
  EXPECT_EQ(onebitCommCount(comm, &count), onebitSuccess);
  std::vector<float> members(static_cast<size_t>(count));
  members[static_cast<size_t>(rank)] = static_cast<float>(former_rank);
  EXPECT_EQ(onebitAllReduce(members.data(), members.data(), members.size(), onebitFloat32,
                            onebitSum, nullptr, comm, nullptr),
            onebitSuccess)
      << onebitGetLastError(nullptr);
  return members;
}

using Members = std::vector<float>;

TEST_P(RegroupTest, SplitMakesAGroupPerColorInTheOrderOfKeys) {
  const std::vector<UniqueComm> comms = MakeGroup(5);
  const std::vector<int> colors = {1, 0, 1, ONEBIT_SPLIT_NOCOLOR, 1};
  const std::vector<int> keys = {7, 0, -3, 0, 7};
  std::vector<UniqueComm> made(comms.size());
  std::vector<Members> members(comms.size());
  const auto outcomes = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommSplit(comms[r].get(), colors[r], keys[r], &comm, nullptr);
    made[r].reset(comm);
    if (comm != nullptr) members[r] = MembersOf(comm, static_cast<int>(r));
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(made[3], nullptr);
  EXPECT_EQ(members[1], Members{1});
  for (const size_t r : {0, 2, 4}) EXPECT_EQ(members[r], (Members{2, 0, 4}));
  // The communicator is unchanged and can be split again.
  const auto again = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result = onebitCommSplit(comms[r].get(), 0, 0, &comm, nullptr);
    if (comm != nullptr) members[r] = MembersOf(comm, static_cast<int>(r));
    onebitCommDestroy(comm);
    return result == onebitSuccess ? onebitBarrier(comms[r].get(), nullptr) : result;
  });
  for (const Outcome& outcome : again) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  for (const Members& each : members) EXPECT_EQ(each, (Members{0, 1, 2, 3, 4}));
}

TEST_P(RegroupTest, ColorThatCannotBeIsToldOnAllRanks) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  const auto outcomes = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t comm = nullptr;
    return onebitCommSplit(comms[r].get(), r == 1 ? -7 : 0, 0, &comm, nullptr);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitInvalidArgument);
    EXPECT_THAT(outcome.text, HasSubstr("the color of rank 1 is -7"));
  }
}

TEST_P(RegroupTest, SplitWithoutARankNamesIt) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.connectTimeoutMs = static_cast<int>(PacedMs(300));
  const auto outcomes = CallRanks({0, 2}, [&](size_t r) {
    onebitComm_t comm = nullptr;
    return onebitCommSplit(comms[r].get(), 0, 0, &comm, &config);
  });
  int timeouts = 0;
  for (const Outcome& outcome : outcomes) {
    timeouts += outcome.result == onebitTimeout ? 1 : 0;
    EXPECT_NE(outcome.result, onebitSuccess);
    EXPECT_THAT(outcome.text, HasSubstr("splitting the communicator"));
  }
  EXPECT_GE(timeouts, 1);
  EXPECT_NE(onebitBarrier(comms[1].get(), nullptr), onebitSuccess);
}

TEST_P(RegroupTest, OtherTransportIsRefused) {
  const std::vector<UniqueComm> comms = MakeGroup(1);
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.transport = "fake";
  onebitComm_t comm = nullptr;
  EXPECT_EQ(onebitCommSplit(comms[0].get(), 0, 0, &comm, &config), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("of this communicator use \"local\""));
}

TEST_P(RegroupTest, ShrinkLeavesRanksOut) {
  const std::vector<UniqueComm> comms = MakeGroup(4);
  const std::vector<int> excluded = {2, 0};
  std::vector<Members> members(comms.size());
  const auto outcomes = CallRanks({1, 3}, [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), excluded.data(), 2, &comm, nullptr, ONEBIT_SHRINK_DEFAULT);
    if (comm != nullptr) members[r] = MembersOf(comm, static_cast<int>(r));
    onebitCommDestroy(comm);
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(members[1], (Members{1, 3}));
  EXPECT_EQ(members[3], (Members{1, 3}));
  // The original was healthy and still is.
  for (const Outcome& outcome :
       CallRanks(AllOf(comms), [&](size_t r) { return onebitBarrier(comms[r].get(), nullptr); })) {
    EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  }
}

TEST_P(RegroupTest, RanksGoOnAfterAFailureOfNobodysDeath) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  std::vector<float> values(64, 1);
  const auto failures = CallRanks(AllOf(comms), [&](size_t r) {
    std::vector<float> own = values;
    return onebitAllReduce(own.data(), own.data(), r == 1 ? 60 : 64, onebitFloat32, onebitSum,
                           nullptr, comms[r].get(), nullptr);
  });
  for (const Outcome& failure : failures) EXPECT_EQ(failure.result, onebitMismatch);
  std::vector<Members> members(comms.size());
  const auto outcomes = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), nullptr, 0, &comm, nullptr, ONEBIT_SHRINK_ABORT);
    if (comm != nullptr) members[r] = MembersOf(comm, static_cast<int>(r));
    onebitCommDestroy(comm);
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  for (const Members& each : members) EXPECT_EQ(each, (Members{0, 1, 2}));
}

TEST_P(RegroupTest, AfterAShrinkAllThatDidNotComeAreLost) {
  std::vector<UniqueComm> comms = MakeGroup(4);
  for (const size_t gone : {2, 3}) comms[gone].reset();
  std::vector<std::vector<int>> lost(2, std::vector<int>(4));
  const auto outcomes = CallRanks({0, 1}, [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), nullptr, 0, &comm, nullptr, ONEBIT_SHRINK_ABORT);
    onebitCommDestroy(comm);
    int count = 4;
    EXPECT_EQ(onebitCommGetLost(comms[r].get(), lost[r].data(), &count), onebitSuccess);
    lost[r].resize(static_cast<size_t>(count));
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  for (const std::vector<int>& each : lost) EXPECT_EQ(each, (std::vector<int>{2, 3}));
}

TEST_P(RegroupTest, ShrinkWithSettingsThatDifferFailsOnAllRanks) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  const auto outcomes = CallRanks(AllOf(comms), [&](size_t r) {
    onebitConfig_t config = ONEBIT_CONFIG_INIT;
    config.connectTimeoutMs = 600'000;  // nobody waits for it
    config.quorum = r == 1 ? 1 : 0;
    onebitComm_t comm = nullptr;
    return onebitCommShrink(comms[r].get(), nullptr, 0, &comm, &config, ONEBIT_SHRINK_ABORT);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, onebitMismatch) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("ONEBIT_QUORUM"));
  }
}

TEST_P(RegroupTest, ShrinkEndsTheCallOfAnotherThread) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  std::vector<Members> members(comms.size());
  std::jthread blocked([&] { EXPECT_EQ(onebitBarrier(comms[0].get(), nullptr), onebitAborted); });
  EXPECT_TRUE(AwaitOtherThreadsAsleep());
  const int excluded = 2;
  const auto outcomes = CallRanks({0, 1}, [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), &excluded, 1, &comm, nullptr,
                         r == 0 ? ONEBIT_SHRINK_ABORT : ONEBIT_SHRINK_DEFAULT);
    if (comm != nullptr) members[r] = MembersOf(comm, static_cast<int>(r));
    onebitCommDestroy(comm);
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(members[1], (Members{0, 1}));
}

TEST_P(RegroupTest, AnAttemptThatFailedCanBeRepeated) {
  const std::vector<UniqueComm> comms = MakeGroup(4);
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  const int short_ms = static_cast<int>(PacedMs(300));
  const std::vector<int> first_list = {0};
  const std::vector<int> second_list = {0, 3};
  const auto shrink = [&](size_t r, const std::vector<int>& list, int timeout_ms, Members* found) {
    onebitConfig_t times = config;
    times.connectTimeoutMs = timeout_ms;
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), list.data(), static_cast<int>(list.size()), &comm, &times,
                         ONEBIT_SHRINK_DEFAULT);
    if (comm != nullptr) *found = MembersOf(comm, static_cast<int>(r));
    onebitCommDestroy(comm);
    return result;
  };
  std::vector<Members> members(comms.size());
  const auto failures =
      CallRanks({1, 2}, [&](size_t r) { return shrink(r, first_list, short_ms, &members[r]); });
  for (const Outcome& failure : failures) {
    EXPECT_TRUE(failure.result == onebitTimeout || failure.result == onebitRemoteError);
    EXPECT_THAT(failure.text, HasSubstr("missing"));
    EXPECT_THAT(failure.text, HasSubstr("making a communicator of the former ranks 1 2 3"));
  }
  // Rank 3 does not come at first; then it does, and all ranks agree again.
  for (const auto& list : {second_list, first_list}) {
    std::vector<int> ranks = {1, 2};
    if (list.size() == 1) ranks.push_back(3);
    for (const Outcome& outcome :
         CallRanks(ranks, [&](size_t r) { return shrink(r, list, 10'000, &members[r]); })) {
      EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
    }
    EXPECT_EQ(members[1], list.size() == 1 ? (Members{1, 2, 3}) : (Members{1, 2}));
  }
}

TEST_P(RegroupTest, AbortEndsAShrinkThatWaits) {
  const std::vector<UniqueComm> comms = MakeGroup(3);
  std::jthread watchdog([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    onebitCommAbort(comms[1].get());
  });
  onebitComm_t comm = nullptr;
  const int excluded = 2;
  const Outcome outcome = CallHere([&] {  // rank 0 does not come
    return onebitCommShrink(comms[1].get(), &excluded, 1, &comm, nullptr, ONEBIT_SHRINK_DEFAULT);
  });
  EXPECT_EQ(outcome.result, onebitAborted) << outcome.text;
}

TEST_P(RegroupTest, ListsThatDifferFailOnAllRanks) {
  const std::vector<UniqueComm> comms = MakeGroup(4);
  onebitConfig_t config = ONEBIT_CONFIG_INIT;
  config.connectTimeoutMs = 500;
  const auto outcomes = CallRanks({0, 1}, [&](size_t r) {
    const int excluded[] = {r == 0 ? 2 : 3};
    onebitComm_t comm = nullptr;
    return onebitCommShrink(comms[r].get(), excluded, 1, &comm, &config, ONEBIT_SHRINK_DEFAULT);
  });
  for (const Outcome& outcome : outcomes) EXPECT_NE(outcome.result, onebitSuccess);
}

TEST_P(RegroupTest, ArgumentsAreChecked) {
  const std::vector<UniqueComm> comms = MakeGroup(2);
  onebitComm_t comm = nullptr;
  const int self = 0;
  const int nobody = 2;
  EXPECT_EQ(onebitCommShrink(comms[0].get(), &self, 1, &comm, nullptr, 0), onebitInvalidUsage);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("rank 0: this rank is excluded"));
  EXPECT_EQ(onebitCommShrink(comms[0].get(), &nobody, 1, &comm, nullptr, 0), onebitInvalidArgument);
  EXPECT_THAT(onebitGetLastError(nullptr), HasSubstr("has rank 2, but ranks are 0 to 1"));
  EXPECT_EQ(onebitCommShrink(comms[0].get(), nullptr, 1, &comm, nullptr, 0), onebitInvalidArgument);
  EXPECT_EQ(onebitCommShrink(comms[0].get(), nullptr, 0, &comm, nullptr, 2), onebitInvalidArgument);
  EXPECT_EQ(onebitCommShrink(comms[0].get(), nullptr, 0, nullptr, nullptr, 0),
            onebitInvalidArgument);
  EXPECT_EQ(onebitCommShrink(nullptr, nullptr, 0, &comm, nullptr, 0), onebitInvalidArgument);
  EXPECT_EQ(onebitCommSplit(nullptr, 0, 0, &comm, nullptr), onebitInvalidArgument);
  EXPECT_EQ(onebitCommSplit(comms[0].get(), 0, 0, nullptr, nullptr), onebitInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

TEST_P(RegroupTest, OneRankCanRemainAlone) {
  const std::vector<UniqueComm> comms = MakeGroup(2);
  const int excluded = 0;
  onebitComm_t comm = nullptr;
  ASSERT_EQ(onebitCommShrink(comms[1].get(), &excluded, 1, &comm, nullptr, ONEBIT_SHRINK_ABORT),
            onebitSuccess)
      << onebitGetLastError(nullptr);
  EXPECT_EQ(MembersOf(comm, 1), Members{1});
  onebitCommDestroy(comm);
}

TEST_P(RegroupTest, NewCommunicatorsCanBeRegroupedThemselves) {
  const std::vector<UniqueComm> comms = MakeGroup(4);
  std::vector<Members> members(comms.size());
  const auto outcomes = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t half = nullptr;
    onebitResult_t result =
        onebitCommSplit(comms[r].get(), static_cast<int>(r % 2), 0, &half, nullptr);
    const UniqueComm owner(half);
    if (result != onebitSuccess || r == 0) return result;
    const int excluded = 0;  // former rank 0, or 1
    if (r == 1) return result;
    onebitComm_t last = nullptr;
    result = onebitCommShrink(half, &excluded, 1, &last, nullptr, ONEBIT_SHRINK_DEFAULT);
    if (last != nullptr) members[r] = MembersOf(last, static_cast<int>(r));
    onebitCommDestroy(last);
    return result;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(members[2], Members{2});
  EXPECT_EQ(members[3], Members{3});
}

TEST(JoinedHostsTest, RanksStayOnThemWhateverTheConfigurationSays) {
  onebitConfig_t config = LocalConfig();
  config.hostRanks = 2;
  const std::vector<UniqueComm> comms = JoinGroup(4, config);
  EXPECT_EQ(PlaceOf(comms[1].get()), (HostPlace{2, 0, 2}));
  EXPECT_EQ(PlaceOf(comms[2].get()), (HostPlace{2, 1, 2}));

  onebitConfig_t other = ONEBIT_CONFIG_INIT;
  other.hostRanks = 1;
  const int excluded = 0;
  std::vector<HostPlace> split(4);
  std::vector<HostPlace> shrunk(4);
  const auto splits = CallRanks(AllOf(comms), [&](size_t r) {
    onebitComm_t comm = nullptr;  // ranks 3 2 1 0
    const onebitResult_t result =
        onebitCommSplit(comms[r].get(), 0, -static_cast<int>(r), &comm, &other);
    if (comm != nullptr) split[r] = PlaceOf(comm);
    onebitCommDestroy(comm);
    return result;
  });
  for (const Outcome& outcome : splits) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(split[3], (HostPlace{2, 0, 2}));
  EXPECT_EQ(split[0], (HostPlace{2, 1, 2}));

  const auto shrinks = CallRanks({1, 2, 3}, [&](size_t r) {
    onebitComm_t comm = nullptr;
    const onebitResult_t result =
        onebitCommShrink(comms[r].get(), &excluded, 1, &comm, &other, ONEBIT_SHRINK_DEFAULT);
    if (comm != nullptr) shrunk[r] = PlaceOf(comm);
    onebitCommDestroy(comm);
    return result;
  });
  for (const Outcome& outcome : shrinks) EXPECT_EQ(outcome.result, onebitSuccess) << outcome.text;
  EXPECT_EQ(shrunk[1], (HostPlace{2, 0, 1}));
  EXPECT_EQ(shrunk[2], (HostPlace{2, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RegroupTest, ::testing::Values(Kind::kInitAll, Kind::kJoined),
                         [](const auto& info) {
                           return info.param == Kind::kInitAll ? "InitAll" : "Joined";
                         });

}  // namespace
}  // namespace onebit::testing
