// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tests the rules of the hub with made-up messages and times.
#include "comm/control_hub.h"

#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onebit {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Records the messages on each link as text.
class FakeLinks final : public ControlLinks {
 public:
  void Send(uint64_t link, const HubMessage& message) override {
    EXPECT_FALSE(closed_.contains(link)) << "a message on closed link " << link;
    said_[link].push_back(TextOf(message));
  }
  void Close(uint64_t link) override {
    EXPECT_TRUE(closed_.insert({link, true}).second) << "link " << link << " is closed twice";
    said_[link].push_back("(closed)");
  }

  bool IsLossy(uint64_t link) const override { return lossy_.contains(link); }
  void Lose(uint64_t link) { lossy_.insert(link); }

  // Returns the messages since the last call.
  std::vector<std::string> Said(uint64_t link) { return std::exchange(said_[link], {}); }
  void Forget() { said_.clear(); }

 private:
  static std::string TextOf(const HubMessage& message) {
    if (const auto* joined = std::get_if<Joined>(&message)) {
      return Format("joined {:x} {}", joined->comm_id, joined->process);
    }
    if (const auto* gathered = std::get_if<Gathered>(&message)) {
      std::string text = Format("gathered {}:", gathered->number);
      for (const Bytes& content : gathered->contents) {
        AppendFormat(
            &text, " {}",
            std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
      }
      return text;
    }
    if (const auto* failed = std::get_if<Failed>(&message)) {
      const Failure& first = failed->first;
      const char* how = first.is_of_group ? "differs" : first.is_loss ? "lost" : "failed";
      return Format("rank {} {}: {} {}", first.rank, how, static_cast<int>(first.cause.code()),
                    first.cause.text());
    }
    if (const auto* alive = std::get_if<HubAlive>(&message)) {
      std::string text = Format("alive, {} missing:", alive->missing);
      for (const uint32_t rank : alive->some_missing) AppendFormat(&text, " {}", rank);
      if (!alive->note.empty()) AppendFormat(&text, "; {}", alive->note);
      return text;
    }
    if (const auto* refused = std::get_if<Refused>(&message)) {
      return Format("{}: {} {}", refused->is_other_job ? "other job" : "refused",
                    static_cast<int>(refused->cause.code()), refused->cause.text());
    }
    return "may end";
  }

  std::map<uint64_t, std::vector<std::string>> said_;
  std::map<uint64_t, bool> closed_;
  std::set<uint64_t> lossy_;
};

class ControlHubTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kHeartbeatMs = 100;
  static constexpr uint32_t kLossMs = 400;

  // Rank r has link 10 + r and process "host:r", so rank 0 is in the hub's own process.
  static uint64_t LinkOf(uint32_t rank) { return 10 + rank; }

  void Say(uint64_t link, const RankMessage& message) { hub_.OnMessage(link, message, now_); }
  void JoinOne(uint32_t rank, uint32_t ranks) {
    Say(LinkOf(rank), Join{.rank = rank,
                           .ranks = ranks,
                           .heartbeat_ms = kHeartbeatMs,
                           .loss_timeout_ms = kLossMs,
                           .process = Format("host:{}", rank)});
  }
  void JoinAll(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) JoinOne(rank, ranks);
    links_.Forget();
  }
  void GatherOne(uint32_t rank, uint64_t number, std::string_view text) {
    const auto bytes = AsBytes(text);
    Say(LinkOf(rank), Gather{.number = number, .content = {bytes.begin(), bytes.end()}});
  }
  std::vector<std::string> Said(uint32_t rank) { return links_.Said(LinkOf(rank)); }
  Clock::time_point After(milliseconds time) { return now_ += time; }

  FakeLinks links_;
  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
  ControlHub hub_{"host:0", 0xabc, links_};
};

TEST_F(ControlHubTest, WhoJoinsIsToldWhatItJoined) {
  JoinOne(1, 2);
  EXPECT_THAT(Said(1), ElementsAre("joined abc host:0"));
  EXPECT_FALSE(hub_.is_complete());
  JoinOne(0, 2);
  EXPECT_TRUE(hub_.is_complete());
  EXPECT_EQ(hub_.present(), 2u);
  EXPECT_FALSE(hub_.is_over());
  EXPECT_FALSE(hub_.has_failed());
}

TEST_F(ControlHubTest, WhoSpeaksBeforeItJoinsIsSentAway) {
  const RankMessage first_words[] = {
      Gather{},    RecordBatch{}, Report{{}, Error(Code::kTimeout, "x")}, WhoIsMissing{}, Leave{},
      RankAlive{}, Waits{}};
  uint64_t link = 1;
  for (const RankMessage& message : first_words) {
    Say(link, message);
    EXPECT_THAT(links_.Said(link), ElementsAre("(closed)"));
    ++link;
  }
  EXPECT_FALSE(hub_.has_failed());
}

TEST_F(ControlHubTest, RanksThatCannotBeAreRefused) {
  for (const auto& [rank, ranks] : {std::pair(0u, 0u), {2u, 2u}, {0u, kMaxRanks + 1}}) {
    ControlHub hub("host:0", 1, links_);
    hub.OnMessage(1000 + ranks, Join{.rank = rank, .ranks = ranks, .process = "a:1"}, now_);
    EXPECT_THAT(
        links_.Said(1000 + ranks),
        ElementsAre(Format("refused: 4 rank {} of {} is out of range", rank, ranks), "(closed)"));
    EXPECT_TRUE(hub.has_failed());
  }
}

TEST_F(ControlHubTest, DifferentNumbersOfRanksNameBothRanksAndPlaces) {
  JoinOne(1, 4);
  Said(1);
  JoinOne(2, 3);
  const std::string mismatch =
      "100 nranks differs between ranks: rank 1 (host:1) has 4, rank 2 (host:2) has "
      "3; start all ranks with the same number";
  EXPECT_THAT(Said(2), ElementsAre("refused: " + mismatch, "(closed)"));
  EXPECT_THAT(Said(1), ElementsAre("rank 2 failed: " + mismatch));
}

TEST_F(ControlHubTest, ARankThatJoinsTwiceNamesBothPlaces) {
  JoinOne(1, 3);
  Said(1);
  Say(99, Join{.rank = 1, .ranks = 3, .process = "other:5"});
  const std::string mismatch =
      "100 rank 1 joined twice: host:1 and other:5; give every process a rank of its own";
  EXPECT_THAT(links_.Said(99), ElementsAre("refused: " + mismatch, "(closed)"));
  EXPECT_THAT(Said(1), ElementsAre("rank 1 failed: " + mismatch));
}

TEST_F(ControlHubTest, AProcessThatCanServeNoMoreEndsTheStartForAll) {
  EXPECT_EQ(hub_.awaited(), 1u);
  JoinOne(0, 4);
  JoinOne(2, 4);
  links_.Forget();
  EXPECT_EQ(hub_.awaited(), 2u);
  hub_.Fail(Error(Code::kSystemError, "too few descriptors"));
  for (const uint32_t rank : {0u, 2u}) {
    EXPECT_THAT(Said(rank), ElementsAre("rank 0 differs: 2 too few descriptors"));
  }
  JoinOne(1, 4);
  EXPECT_THAT(Said(1), ElementsAre("rank 0 differs: 2 too few descriptors", "(closed)"));
}

// A hub at a place to which ranks of other jobs may come.
class JobHubTest : public ControlHubTest {
 protected:
  void JoinAs(ControlHub& hub, uint64_t link, uint32_t rank, const char* process, const char* job) {
    hub.OnMessage(link,
                  Join{.rank = rank,
                       .ranks = 2,
                       .heartbeat_ms = kHeartbeatMs,
                       .loss_timeout_ms = kLossMs,
                       .process = process,
                       .job = job},
                  now_);
  }
};

TEST_F(JobHubTest, RanksOfAnotherJobAreTurnedAwayAndThisOneGoesOn) {
  ControlHub hub("host:0", 1, links_, "ONEBIT_JOB=right");
  JoinAs(hub, 10, 0, "host:0", "ONEBIT_JOB=right");
  EXPECT_THAT(links_.Said(10), ElementsAre("joined 1 host:0"));
  for (const uint32_t rank : {0u, 1u}) {
    JoinAs(hub, 20 + rank, rank, "other:5", "ONEBIT_JOB=wrong");
    EXPECT_THAT(
        links_.Said(20 + rank),
        ElementsAre(
            Format("other job: 100 other:5, rank {} of the job ONEBIT_JOB=wrong, came to where the "
                   "job ONEBIT_JOB=right meets (its rank 0 is host:0): give each job a rendezvous "
                   "of its own (ONEBIT_RENDEZVOUS, or MASTER_ADDR and MASTER_PORT), or, if they "
                   "are one job, give all ranks the same ONEBIT_JOB",
                   rank),
            "(closed)"));
  }
  JoinAs(hub, 30, 1, "other:6", "");
  EXPECT_THAT(links_.Said(30),
              ElementsAre(HasSubstr("rank 1 of a job without ONEBIT_JOB, came"), "(closed)"));
  hub.OnMessage(10, WhoIsMissing{}, now_);
  EXPECT_THAT(
      links_.Said(10),
      ElementsAre(
          "alive, 1 missing: 1; other:6, rank 1 of a job without ONEBIT_JOB, was turned away"));
  JoinAs(hub, 11, 1, "host:1", "ONEBIT_JOB=right");
  EXPECT_THAT(links_.Said(11), ElementsAre("joined 1 host:0"));
  EXPECT_TRUE(hub.is_complete());
  EXPECT_FALSE(hub.has_failed());
}

TEST_F(JobHubTest, WithoutAWordASecondRank0FailsBothJobsEvenIfItIsTheFirstToCome) {
  ControlHub hub("host:0", 1, links_, "");
  JoinAs(hub, 11, 1, "host:1", "");
  links_.Forget();
  JoinAs(hub, 20, 0, "other:5", "");
  const std::string twice =
      "100 rank 0 joined twice: host:0 and other:5; give every process a rank of its own, and "
      "every job a rendezvous or an ONEBIT_JOB of its own";
  EXPECT_THAT(links_.Said(20), ElementsAre("refused: " + twice, "(closed)"));
  EXPECT_THAT(links_.Said(11), ElementsAre("rank 0 failed: " + twice));
  JoinAs(hub, 10, 0, "host:0", "");
  EXPECT_THAT(links_.Said(10), ElementsAre("rank 0 failed: " + twice, "(closed)"));
}

TEST_F(JobHubTest, AnAddressThatNobodyElseKnowsNeedsNoWord) {
  ControlHub hub("host:0", 1, links_);
  JoinAs(hub, 10, 0, "other:5", "ONEBIT_JOB=a");
  JoinAs(hub, 11, 1, "host:1", "");
  EXPECT_TRUE(hub.is_complete());
}

TEST_F(ControlHubTest, ASecondJoinOnALinkEndsIt) {
  JoinAll(2);
  JoinOne(1, 2);
  EXPECT_THAT(Said(1), ElementsAre("(closed)"));
  EXPECT_THAT(Said(0), ElementsAre("rank 1 lost: 102 its process host:1 joined a second time"));
}

TEST_F(ControlHubTest, AGatherGivesAllContentsToAll) {
  JoinAll(3);
  GatherOne(2, 0, "c");
  GatherOne(0, 0, "a");
  EXPECT_THAT(Said(0), IsEmpty());
  GatherOne(1, 0, "b");
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Said(rank), ElementsAre("gathered 0: a b c"));
  }
  for (uint32_t rank = 0; rank < 3; ++rank) GatherOne(rank, 1, "x");
  EXPECT_THAT(Said(2), ElementsAre("gathered 1: x x x"));
}

TEST_F(ControlHubTest, AGatherMayBeginBeforeAllHaveJoined) {
  JoinOne(0, 2);
  GatherOne(0, 0, "a");
  JoinOne(1, 2);
  links_.Forget();
  GatherOne(1, 0, "b");
  EXPECT_THAT(Said(0), ElementsAre("gathered 0: a b"));
}

TEST_F(ControlHubTest, AGatherOfAnotherNumberIsAFailure) {
  JoinAll(2);
  GatherOne(1, 1, "b");
  EXPECT_THAT(Said(0), ElementsAre("rank 1 failed: 3 it sent gather 1 when 0 was due"));
}

TEST_F(ControlHubTest, AGatherSaidTwiceIsAFailure) {
  JoinAll(2);
  GatherOne(1, 0, "b");
  GatherOne(1, 0, "b");
  EXPECT_THAT(Said(0), ElementsAre(HasSubstr("rank 1 failed: 3 it sent gather 0")));
}

TEST_F(ControlHubTest, ContentsBeyondTheLimitAreAFailure) {
  JoinAll(2);
  GatherOne(1, 0, std::string(kMaxContentBytes + 1, 'x'));
  EXPECT_THAT(Said(0), ElementsAre(HasSubstr("rank 1 failed: 3")));
}

TEST_F(ControlHubTest, CallsThatDifferAreToldToAll) {
  JoinAll(3);
  const RecordBatch here = {.records = {{.sequence = 0, .digest = 1, .text = "a"},
                                        {.sequence = 1, .digest = 1, .text = "b"}}};
  const RecordBatch there = {.records = {{.sequence = 0, .digest = 1, .text = "a"},
                                         {.sequence = 1, .digest = 2, .text = "c"}}};
  Say(LinkOf(2), here);
  Say(LinkOf(0), here);
  EXPECT_THAT(Said(1), IsEmpty());
  Say(LinkOf(1), there);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(Said(rank), ElementsAre("rank 1 differs: 100 the ranks' calls differ: call 1 is b "
                                        "on rank 2 and c on rank 1"));
  }
  Say(LinkOf(1), there);
  EXPECT_THAT(Said(1), IsEmpty());
}

TEST_F(ControlHubTest, CallsOutOfOrderAreAFailure) {
  JoinAll(2);
  Say(LinkOf(1), RecordBatch{.records = {{.sequence = 1, .digest = 1, .text = "a"}}});
  EXPECT_THAT(Said(0),
              ElementsAre("rank 1 differs: 101 rank 1 reports call 1 after 0 unreported ones "
                          "when call 0 was due"));
}

TEST_F(ControlHubTest, AnEarlierFailureStaysWhenCallsDiffer) {
  JoinAll(2);
  Say(LinkOf(0), Report{{}, Error(Code::kCorrupt, "first")});
  links_.Forget();
  Say(LinkOf(0), RecordBatch{.records = {{.sequence = 0, .digest = 1, .text = "a"}}});
  Say(LinkOf(1), RecordBatch{.records = {{.sequence = 0, .digest = 2, .text = "b"}}});
  EXPECT_THAT(Said(0), IsEmpty());
}

TEST_F(ControlHubTest, TheFirstFailureWins) {
  JoinAll(3);
  Say(LinkOf(1), Report{{}, Error(Code::kCorrupt, "first")});
  Say(LinkOf(2), Report{{}, Error(Code::kTimeout, "second")});
  EXPECT_THAT(Said(1), ElementsAre("rank 1 failed: 101 first"));
  EXPECT_THAT(Said(2), ElementsAre("rank 1 failed: 101 first"));
}

TEST_F(ControlHubTest, TheLossOfARankThatThereIsNotIsAFailureOfWhoTells) {
  JoinAll(3);
  Say(LinkOf(1), Report{.lost = 3, .cause = Error(Code::kPeerLost, "gone")});
  EXPECT_THAT(Said(2), ElementsAre("rank 1 failed: 102 gone"));
}

TEST_F(ControlHubTest, WhoJoinsLateHearsOfTheFailure) {
  JoinOne(0, 2);
  Say(LinkOf(0), Report{{}, Error(Code::kCorrupt, "first")});
  JoinOne(1, 2);
  EXPECT_THAT(Said(1), ElementsAre("rank 0 failed: 101 first", "(closed)"));
}

// For example a rank that starts again: the error is not that it was here before.
TEST_F(ControlHubTest, WhoComesAgainAfterAFailureHearsOfIt) {
  JoinOne(0, 2);
  Say(LinkOf(0), Report{{}, Error(Code::kCorrupt, "first")});
  Said(0);
  Say(99, Join{.rank = 0, .ranks = 2, .process = "other:5"});
  EXPECT_THAT(links_.Said(99), ElementsAre("rank 0 failed: 101 first", "(closed)"));
  EXPECT_THAT(Said(0), IsEmpty());
}

TEST_F(ControlHubTest, AProcessThatWasStoppedForTooLongIsItselfTheLoss) {
  JoinAll(2);
  hub_.OnTimer(now_);
  hub_.OnStall(After(milliseconds(kLossMs - 1)));
  EXPECT_FALSE(hub_.has_failed());
  links_.Forget();
  hub_.OnStall(After(milliseconds(kLossMs)));
  EXPECT_THAT(Said(1), ElementsAre("rank 0 lost: 102 its process host:0 was stopped for 0.4 s, "
                                   "longer than ONEBIT_LOSS_TIMEOUT_MS"));
}

TEST_F(ControlHubTest, AConnectionThatEndsIsALoss) {
  JoinAll(3);
  hub_.OnGone(LinkOf(1), "closed its control connection");
  const std::string lost = "rank 1 lost: 102 its process host:1 closed its control connection";
  EXPECT_THAT(Said(0), ElementsAre(lost));
  EXPECT_THAT(Said(1), IsEmpty());
  EXPECT_EQ(hub_.present(), 2u);
  hub_.OnGone(LinkOf(1), "again");
  hub_.OnGone(4711, "never joined");
  EXPECT_EQ(hub_.present(), 2u);
}

TEST_F(ControlHubTest, EveryLossIsTold) {
  JoinAll(4);
  hub_.OnGone(LinkOf(1), "went");
  hub_.OnGone(LinkOf(3), "went, too");
  EXPECT_THAT(Said(2), ElementsAre("rank 1 lost: 102 its process host:1 went",
                                   "rank 3 lost: 102 its process host:3 went, too"));
  // The first one is the cause.
  JoinOne(1, 4);
  EXPECT_THAT(Said(1), ElementsAre("rank 1 lost: 102 its process host:1 went", "(closed)"));
}

TEST_F(ControlHubTest, SilenceIsALossAtTheTimeOutAndNotBefore) {
  JoinAll(2);
  hub_.OnTimer(After(milliseconds(kLossMs - 1)));
  Say(LinkOf(0), RankAlive{});
  EXPECT_FALSE(hub_.has_failed());
  links_.Forget();
  hub_.OnTimer(After(milliseconds(1)));
  const std::string lost =
      "rank 1 lost: 102 its process host:1 has been silent for 0.4 s (ONEBIT_LOSS_TIMEOUT_MS)";
  EXPECT_THAT(Said(0), testing::Contains(lost));
  // The rank may be alive after all.
  EXPECT_THAT(Said(1), ElementsAre(lost, "(closed)"));
}

// After an outage TCP's next attempt comes up to as long again as the outage lasted.
TEST_F(ControlHubTest, SilenceOfALossyLinkIsALossAtTwiceTheTimeOutAndNotBefore) {
  JoinAll(2);
  links_.Lose(LinkOf(1));
  const auto say_0 = [this] { Say(LinkOf(0), RankAlive{}); };
  hub_.OnTimer(After(milliseconds(kLossMs - 1)));
  say_0();
  const auto next = hub_.OnTimer(After(milliseconds(1)));
  EXPECT_LE(next, now_ + milliseconds(kLossMs));
  hub_.OnTimer(After(milliseconds(kLossMs - 2)));
  say_0();
  hub_.OnTimer(After(milliseconds(1)));
  EXPECT_FALSE(hub_.has_failed());
  links_.Forget();
  hub_.OnTimer(After(milliseconds(1)));
  EXPECT_THAT(Said(0), testing::Contains(
                           "rank 1 lost: 102 its process host:1 has been silent for 0.8 s (twice "
                           "ONEBIT_LOSS_TIMEOUT_MS, because packets to it get lost)"));
}

TEST_F(ControlHubTest, ALossyLinkThatIsHeardInTimeIsNoLoss) {
  JoinAll(2);
  links_.Lose(LinkOf(1));
  for (int i = 0; i < 3; ++i) {
    for (int half = 0; half < 2; ++half) {
      hub_.OnTimer(After(milliseconds(kLossMs - 1)));
      Say(LinkOf(0), RankAlive{});
    }
    Say(LinkOf(1), RankAlive{});
  }
  EXPECT_FALSE(hub_.has_failed());
}

TEST_F(ControlHubTest, WhateverARankSaysIsASignOfLife) {
  JoinAll(2);
  for (int i = 0; i < 10; ++i) {
    hub_.OnTimer(After(milliseconds(kLossMs - 1)));
    Say(LinkOf(0), RankAlive{});
    Say(LinkOf(1), WhoIsMissing{});
  }
  EXPECT_FALSE(hub_.has_failed());
}

TEST_F(ControlHubTest, TheTimerIsAskedForWhenSomethingIsDue) {
  EXPECT_EQ(hub_.OnTimer(now_), Clock::time_point::max());
  JoinAll(1);
  EXPECT_EQ(hub_.OnTimer(now_), now_ + milliseconds(kHeartbeatMs));
  EXPECT_THAT(Said(0), IsEmpty());
  const auto next = hub_.OnTimer(After(milliseconds(kHeartbeatMs)));
  EXPECT_THAT(Said(0), ElementsAre("alive, 0 missing:"));
  EXPECT_EQ(next, now_ + milliseconds(kHeartbeatMs));
  hub_.OnTimer(After(milliseconds(kHeartbeatMs)));
  hub_.OnTimer(After(milliseconds(kHeartbeatMs)));
  const auto loss = hub_.OnTimer(After(milliseconds(kHeartbeatMs - 1)));
  EXPECT_EQ(loss, now_ + milliseconds(1));
}

TEST_F(ControlHubTest, AStallOfThisProcessForgives) {
  JoinAll(2);
  hub_.OnTimer(After(milliseconds(kLossMs - 1)));
  hub_.OnStall(After(milliseconds(kLossMs - 1)));
  hub_.OnTimer(now_);
  EXPECT_FALSE(hub_.has_failed());
  hub_.OnTimer(After(milliseconds(kLossMs)));
  EXPECT_TRUE(hub_.has_failed());
}

TEST_F(ControlHubTest, WhoIsMissingNamesThoseWhoHaveNotJoined) {
  JoinOne(1, 4);
  JoinOne(3, 4);
  links_.Forget();
  Say(LinkOf(1), WhoIsMissing{});
  EXPECT_THAT(Said(1), ElementsAre("alive, 2 missing: 0 2"));
  EXPECT_THAT(Said(3), IsEmpty());
}

TEST_F(ControlHubTest, WhoIsMissingNamesThoseWhoHaveNotGathered) {
  JoinAll(4);
  Say(LinkOf(0), WhoIsMissing{});
  EXPECT_THAT(Said(0), ElementsAre("alive, 0 missing:"));
  GatherOne(0, 0, "a");
  GatherOne(2, 0, "a");
  Say(LinkOf(0), WhoIsMissing{});
  EXPECT_THAT(Said(0), ElementsAre("alive, 2 missing: 1 3"));
}

TEST_F(ControlHubTest, OnlySomeOfManyMissingRanksAreNamed) {
  JoinOne(0, 1000);
  Said(0);
  Say(LinkOf(0), WhoIsMissing{});
  EXPECT_THAT(Said(0), ElementsAre("alive, 999 missing: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"));
}

constexpr const char* kRank2HasLeft =
    "rank 2 differs: 6 rank 2 has left (its program ended, or destroyed the communicator) while "
    "others wait";

TEST_F(ControlHubTest, WhoLeavesIsNoFailure) {
  JoinAll(3);
  Say(LinkOf(2), Leave{});
  EXPECT_THAT(Said(2), ElementsAre("(closed)"));
  EXPECT_THAT(Said(0), IsEmpty());
  hub_.OnTimer(After(milliseconds(kHeartbeatMs)));
  EXPECT_FALSE(hub_.has_failed());
}

TEST_F(ControlHubTest, WhoLeavesWhileOthersWaitIsAFailure) {
  JoinAll(3);
  GatherOne(0, 0, "a");
  Say(LinkOf(2), Leave{});
  EXPECT_THAT(Said(0), ElementsAre(kRank2HasLeft));
}

TEST_F(ControlHubTest, AGatherAfterSomebodyLeftIsAFailure) {
  JoinAll(3);
  Say(LinkOf(2), Leave{});
  GatherOne(0, 0, "a");
  EXPECT_THAT(Said(1), ElementsAre(kRank2HasLeft));
}

TEST_F(ControlHubTest, RanksThatWaitInCallsOfDifferentKindsAreAFailure) {
  JoinAll(3);
  Say(LinkOf(1), Waits{.calls = 4, .what = "allreduce 4"});
  Say(LinkOf(0), Waits{.is_gather = true, .calls = 4, .what = "exporting"});
  EXPECT_THAT(
      Said(2),
      ElementsAre("rank 0 differs: 100 the ranks' calls differ: rank 0 is exporting, rank 1 in "
                  "allreduce 4; both are collective: all ranks must make the same calls "
                  "in the same order"));
}

TEST_F(ControlHubTest, WhenTheStarsOwnRankLeavesTheOthersMaySeeItEnd) {
  JoinAll(3);
  Say(LinkOf(0), Leave{});
  EXPECT_THAT(Said(1), ElementsAre("may end"));
  EXPECT_THAT(Said(2), ElementsAre("may end"));
  EXPECT_FALSE(hub_.is_over());
  Say(LinkOf(1), Leave{});
  Say(LinkOf(2), Leave{});
  EXPECT_TRUE(hub_.is_over());
}

TEST_F(ControlHubTest, NothingIsOverWhileSomebodyMayStillJoin) {
  JoinOne(0, 2);
  Say(LinkOf(0), Leave{});
  EXPECT_EQ(hub_.present(), 0u);
  EXPECT_FALSE(hub_.is_over());
  JoinOne(1, 2);
  EXPECT_FALSE(hub_.is_over());
  hub_.OnGone(LinkOf(1), "went");
  EXPECT_TRUE(hub_.is_over());
}

}  // namespace
}  // namespace onebit
