// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Who is in when ranks meet, who is waited for, and what those are told who are not in. Ranks are
// threads that meet over loopback as processes do; what they meet for is left out.
#include "comm/meeting_point.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/rendezvous.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadlines.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Ranks = std::vector<int>;

// A grace or a deadline that no test waits for.
constexpr milliseconds kLong{600'000};

class MeetingPointTest : public ::testing::Test {
 protected:
  // Each rank has a port. Those of `silent` are open, but nobody answers.
  void Open(int ranks, const Ranks& silent = {}) {
    std::vector<SparePort> ports;
    for (int rank = 0; rank < ranks; ++rank) {
      ports.push_back(ValueOrThrow(OpenSparePort({}, LoopbackAddress())));
      ids_.push_back(ports.back().id);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      SparePort& port = ports[static_cast<size_t>(rank)];
      if (std::ranges::find(silent, rank) != silent.end()) {
        silent_.push_back(std::move(port.listener));
      } else {
        points_[rank] = ValueOrThrow(MeetingPoint::Open(std::move(port), rank, ids_));
      }
    }
  }

  static MeetingPoint::Wish AnyWish() {
    return {.members = {}, .grace = kLong, .deadline = In(kLong)};
  }
  static Deadline In(milliseconds time) { return std::chrono::steady_clock::now() + time; }

  using Wishes = std::map<int, MeetingPoint::Wish>;
  static Wishes SameWish(const Ranks& ranks, const MeetingPoint::Wish& wish) {
    Wishes wishes;
    for (const int rank : ranks) wishes[rank] = wish;
    return wishes;
  }

  // What each of the ranks gets. Agreements are ended as if all had joined.
  std::map<int, Result<MeetingPoint::Agreement>> Meet(const Ranks& ranks,
                                                      const MeetingPoint::Wish& wish) {
    return Meet(SameWish(ranks, wish));
  }
  std::map<int, Result<MeetingPoint::Agreement>> Meet(const Wishes& wishes) {
    std::map<int, Result<MeetingPoint::Agreement>> results;
    for (const auto& [rank, wish] : wishes) {
      results.emplace(rank, Status(Code::kInternalError, "none"));
    }
    {
      std::vector<std::jthread> threads;
      for (const auto& [rank, wish] : wishes) {
        threads.emplace_back([&result = results.at(rank), point = points_[rank], wish = wish] {
          result = point->Meet(wish, {});
        });
      }
    }
    for (const auto& [rank, result] : results) {
      if (result.ok()) points_[rank]->End(true);
    }
    return results;
  }

  void ExpectToMeet(const Ranks& ranks, const MeetingPoint::Wish& wish) {
    ExpectToMeet(SameWish(ranks, wish));
  }
  void ExpectToMeet(const Wishes& wishes) {
    Ranks ranks;
    for (const auto& [rank, wish] : wishes) ranks.push_back(rank);
    std::optional<UniqueId> place;
    for (const auto& [rank, result] : Meet(wishes)) {
      ASSERT_TRUE(result.ok()) << rank << ": " << result.status().text();
      const MeetingPoint::Agreement& agreement = result.value();
      EXPECT_EQ(agreement.members, ranks) << rank;
      EXPECT_EQ(agreement.members.size() + agreement.missing.size(), ids_.size()) << rank;
      if (place) {
        EXPECT_EQ(agreement.id.address.Text(), place->address.Text()) << rank;
        EXPECT_EQ(agreement.id.key.bytes, place->key.bytes) << rank;
      }
      place = agreement.id;
    }
  }

  std::vector<UniqueId> ids_;
  std::map<int, std::shared_ptr<MeetingPoint>> points_;
  std::vector<Descriptor> silent_;
};

TEST_F(MeetingPointTest, AllMeet) {
  Open(5);
  ExpectToMeet({0, 1, 2, 3, 4}, AnyWish());
}

TEST_F(MeetingPointTest, RanksThatHaveEndedAreNotWaitedFor) {
  Open(6);
  for (const int rank : {0, 3, 4}) points_.erase(rank);
  ExpectToMeet({1, 2, 5}, AnyWish());
}

TEST_F(MeetingPointTest, RanksThatDoNotAnswerAreWaitedForAsTheGraceSays) {
  Open(4, {0, 1});
  MeetingPoint::Wish wish = AnyWish();
  wish.grace = milliseconds(100);
  ExpectToMeet({2, 3}, wish);
}

// The rank that is late would be the host, or the last visitor.
TEST_F(MeetingPointTest, ARankThatLivesIsWaitedForBeyondTheGrace) {
  for (const int late : {0, 3}) {
    ids_.clear();
    points_.clear();
    Open(4);
    MeetingPoint::Wish wish = AnyWish();
    wish.grace = milliseconds(1);
    Ranks early = {0, 1, 2, 3};
    std::erase(early, late);
    std::atomic<int> decided{0};
    std::vector<std::jthread> threads;
    for (const int rank : early) {
      threads.emplace_back([&, rank] {
        const auto result = points_[rank]->Meet(wish, {});
        ++decided;
        ASSERT_TRUE(result.ok()) << result.status().text();
        EXPECT_EQ(result.value().members, (Ranks{0, 1, 2, 3}));
      });
    }
    std::this_thread::sleep_for(milliseconds(1000));  // far beyond the grace
    EXPECT_EQ(decided, 0);
    const auto result = points_[late]->Meet(wish, {});
    ASSERT_TRUE(result.ok()) << result.status().text();
    EXPECT_EQ(result.value().members, (Ranks{0, 1, 2, 3}));
  }
}

TEST_F(MeetingPointTest, OthersGoOnWithoutARankThatLivesWhenTimeIsUpAndTellIt) {
  for (const int late : {0, 2}) {
    ids_.clear();
    points_.clear();
    Open(3);
    MeetingPoint::Wish wish = AnyWish();
    wish.deadline = In(milliseconds(ShortTimeoutMs()));
    Ranks early = {0, 1, 2};
    std::erase(early, late);
    ExpectToMeet(early, wish);
    const auto result = points_[late]->Meet(AnyWish(), {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
    EXPECT_THAT(result.status().text(),
                HasSubstr(Format("the former ranks {} {} went on without it", early[0], early[1])));
  }
}

TEST_F(MeetingPointTest, ARankIsToldWhoWentOnEvenWhenTheyHaveLeft) {
  Open(3, {});
  MeetingPoint::Wish wish = AnyWish();
  wish.deadline = In(milliseconds(ShortTimeoutMs()));
  ExpectToMeet({0, 1}, wish);
  points_[0]->Leave();
  points_[1]->Leave();
  const auto result = points_[2]->Meet(AnyWish(), {});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().text(), HasSubstr("0 1 went on without it"));
}

// Rank 0 lives, and would be the host of both others.
TEST_F(MeetingPointTest, RanksThatComeAtDifferentTimesGoOnTogetherWithoutALowerOne) {
  Open(3);
  MeetingPoint::Wish first = AnyWish();
  first.grace = milliseconds(1);
  first.deadline = In(milliseconds(2 * ShortTimeoutMs()));
  MeetingPoint::Wish second = first;
  second.deadline = In(kTestTimeout);
  ExpectToMeet({{1, first}, {2, second}});
}

// Rank 3 lives. Rank 2 has been the host before rank 1 comes.
TEST_F(MeetingPointTest, AHostWaitsNoLongerThanTheVisitorThatCameFirst) {
  Open(4);
  points_.erase(0);
  MeetingPoint::Wish first = AnyWish();
  first.grace = milliseconds(1);
  first.deadline = In(milliseconds(2 * ShortTimeoutMs()));
  MeetingPoint::Wish second = first;
  second.deadline = In(kTestTimeout);
  ExpectToMeet({{1, second}, {2, first}});
}

TEST_F(MeetingPointTest, ARankThatWentOnAloneDoesNotStopTheOthers) {
  Open(4);
  MeetingPoint::Wish wish = AnyWish();
  wish.deadline = In(milliseconds(ShortTimeoutMs()));
  ExpectToMeet({3}, wish);
  ExpectToMeet({0, 1, 2}, AnyWish());
}

TEST_F(MeetingPointTest, LatecomersThatAreNotMoreThanThoseWhoWentOnFail) {
  Open(6);
  for (const int rank : {2, 3}) points_.erase(rank);
  MeetingPoint::Wish wish = AnyWish();
  wish.deadline = In(milliseconds(ShortTimeoutMs()));
  ExpectToMeet({0, 1}, wish);
  for (const auto& [rank, result] : Meet({4, 5}, AnyWish())) {
    ASSERT_FALSE(result.ok()) << rank;
    EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
    EXPECT_THAT(result.status().text(), HasSubstr("the former ranks 0 1 went on without it"));
  }
}

// More than the host can ask at a time, so some are asked again before others are asked at all.
TEST_F(MeetingPointTest, ManyRanksThatDoNotAnswerCostNoMoreThanTheGrace) {
  Ranks silent(140);
  std::iota(silent.begin(), silent.end(), 1);
  Open(141, silent);
  MeetingPoint::Wish wish = AnyWish();
  wish.grace = milliseconds(1);
  ExpectToMeet({0}, wish);
}

TEST_F(MeetingPointTest, ARankWithoutDescriptorsDoesNotGoOnAlone) {
  Open(2);
  MeetingPoint::Wish wish = AnyWish();
  wish.grace = milliseconds(1);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none = {.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto result = points_[1]->Meet(wish, {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kSystemError);
  EXPECT_THAT(result.status().text(), HasSubstr("rank 1: no socket for"));
  EXPECT_THAT(result.status().text(), HasSubstr("ulimit -n"));
}

TEST_F(MeetingPointTest, AVisitorThatTimesOutSaysHowManyAreMissing) {
  Open(15);
  MeetingPoint::Wish host = AnyWish();
  for (int rank = 0; rank < 15; ++rank) host.members.push_back(rank);
  MeetingPoint::Wish visitor = host;
  visitor.deadline = In(milliseconds(ShortTimeoutMs()));
  std::atomic<bool> is_over{false};
  std::jthread first(
      [&] { EXPECT_FALSE(points_[0]->Meet(host, [&] { return is_over.load(); }).ok()); });
  const auto result = points_[1]->Meet(visitor, {});
  is_over = true;
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kTimeout);
  EXPECT_THAT(result.status().text(), HasSubstr("former ranks 2 3 4 5 6 7 8 9 ... (13 in all)"));
}

// After a split the others still have the communicator, and may shrink it.
TEST_F(MeetingPointTest, AListLeavesNobodyBehind) {
  Open(3);
  MeetingPoint::Wish wish = AnyWish();
  wish.members = {2, 0};
  for (const auto& [rank, result] : Meet({0, 2}, wish)) {
    ASSERT_TRUE(result.ok()) << result.status().text();
    EXPECT_EQ(result.value().members, wish.members) << rank;
  }
  ExpectToMeet({0, 1, 2}, AnyWish());
}

TEST_F(MeetingPointTest, AListWithARankThatHasLeftFailsAtOnce) {
  Open(3);
  points_.erase(0);
  MeetingPoint::Wish wish = AnyWish();
  wish.members = {0, 1, 2};
  const auto result = points_[1]->Meet(wish, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kPeerLost);
  EXPECT_THAT(result.status().text(), HasSubstr("rank 1: former rank 0 has ended or left"));
}

TEST_F(MeetingPointTest, HalfWithoutTheLowestRankHasNoQuorum) {
  Open(4, {0, 1});
  MeetingPoint::Wish wish = AnyWish();
  wish.grace = milliseconds(100);
  wish.needs_quorum = true;
  for (const auto& [rank, result] : Meet({2, 3}, wish)) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
    EXPECT_THAT(result.status().text(), HasSubstr(Format("rank {}: 2 of 4 ranks have met", rank)));
    EXPECT_THAT(result.status().text(), HasSubstr("the former ranks 0 1 may be alive"));
  }
}

TEST_F(MeetingPointTest, TheDeadDoNotCountForTheQuorum) {
  Open(4);
  points_.erase(0);
  points_.erase(1);
  MeetingPoint::Wish wish = AnyWish();
  wish.needs_quorum = true;
  ExpectToMeet({2, 3}, wish);
}

TEST_F(MeetingPointTest, AMemberThatGoesBeforeItHasJoinedBreaksTheAgreement) {
  for (const int gone : {0, 1}) {
    ids_.clear();
    points_.clear();
    Open(2);
    {
      std::jthread other([&] { EXPECT_TRUE(points_[1]->Meet(AnyWish(), {}).ok()); });
      EXPECT_TRUE(points_[0]->Meet(AnyWish(), {}).ok());
    }
    EXPECT_FALSE(points_[1 - gone]->is_broken());
    points_.erase(gone);
    const auto limit = In(kTestTimeout);
    while (!points_[1 - gone]->is_broken() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    EXPECT_TRUE(points_[1 - gone]->is_broken());
    // It meets again, alone.
    points_[1 - gone]->End(false);
    ExpectToMeet({1 - gone}, AnyWish());
  }
}

}  // namespace
}  // namespace onebit::testing
