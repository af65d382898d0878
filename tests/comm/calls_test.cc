// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that exchange records of their calls: threads of one group, and clients of a control server
// in this process or in another one.
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/comm.h"
#include "tests/support/control_peer.h"
#include "tests/support/deadlines.h"
#include "tests/support/process_figures.h"
#include "tests/support/sanitizers.h"
#include "tests/support/server_process.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr int kRanks = 4;

// Sanitizers keep freed memory for a while: AddressSanitizer 256 MiB, and its notes on each piece.
constexpr size_t kMostGrowthBytes = ONEBIT_HAS_SANITIZER != 0 ? 512 << 20 : 8 << 20;

enum class Channel { kThreads, kProcesses, kServerElsewhere };

class Listener final : public FailureListener {
 public:
  void OnRemoteFailure() override { heard.store(true); }
  std::atomic<bool> heard{false};
};

CallDescriptor AllReduceOf(uint64_t sequence, uint32_t count) {
  return {.sequence = sequence,
          .collective = Collective::kAllReduce,
          .count = count,
          .op = ReduceOp::kAvg};
}
CallDescriptor BroadcastOf(uint64_t sequence, uint32_t count) {
  return {.sequence = sequence, .collective = Collective::kBroadcast, .count = count};
}

void Post(Control& control, const CallDescriptor& call) {
  static_cast<void>(control.PostCall(call));
  control.SendCalls();
}
void Post(Comm& comm, const CallDescriptor& call) {
  static_cast<void>(comm.PostCall(call));
  comm.SendCalls();
}

// Returns once the records that ranks have posted are compared: what each rank gathers comes behind
// them, the second time at the latest, because its thread sends records between two messages.
template <typename RankControl>
void AwaitComparison(std::span<const std::unique_ptr<RankControl>> ranks) {
  for (int times = 0; times < 2; ++times) {
    std::vector<std::jthread> threads;
    for (const auto& rank : ranks) {
      threads.emplace_back([&rank] {
        EXPECT_TRUE(rank->Gather({}, steady_clock::now() + kTestTimeout, "comparing").ok());
      });
    }
  }
}

class CallsTest : public ::testing::TestWithParam<Channel> {
 protected:
  CallsTest() {
    if (GetParam() == Channel::kThreads) {
      const auto group = std::make_shared<LocalGroup>(kRanks);
      for (int rank = 0; rank < kRanks; ++rank) {
        controls_.push_back(std::make_unique<LocalControl>(group, rank, &listeners_[rank]));
        controls_.back()->RecordCalls();
      }
      return;
    }
    if (GetParam() == Channel::kServerElsewhere) server_ = std::make_unique<ServerProcess>();
    Job job = JoinJob(server_ ? server_->id() : StartControlServer(), kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      auto& client = job.ranks[static_cast<size_t>(rank)];
      client->SetListener(&listeners_[rank]);
      client->RecordCalls();
      controls_.push_back(std::move(client));
    }
  }

  void Tell(int rank, const CallDescriptor& call) { Post(control(rank), call); }
  Control& control(int rank) { return *controls_[static_cast<size_t>(rank)]; }
  bool HaveAllHeard() const {
    const auto deadline = steady_clock::now() + kTestTimeout;
    const auto has_heard = [](const Listener& one) { return one.heard.load(); };
    while (!std::all_of(std::begin(listeners_), std::end(listeners_), has_heard)) {
      if (steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  void ExpectThatNobodyFails() {
    AwaitComparison<Control>(controls_);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto failure = control(rank).first_failure();
      EXPECT_FALSE(failure.has_value()) << failure->cause.text();
      EXPECT_FALSE(listeners_[rank].heard.load());
    }
  }

  std::unique_ptr<ServerProcess> server_;
  Listener listeners_[kRanks];
  std::vector<std::unique_ptr<Control>> controls_;  // destroyed before their listeners
};

TEST_P(CallsTest, EqualCallsOfRanksAtDifferentPaceNeverFail) {
  constexpr uint64_t kCalls = 3000;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      for (uint64_t call = 0; call < kCalls; ++call) {
        Tell(rank, AllReduceOf(call, static_cast<uint32_t>(call % 13)));
        // Rank 2 is slower.
        if (rank == 2 && call % 300 == 0) std::this_thread::sleep_for(milliseconds(10));
      }
    });
  }
  threads.clear();
  ExpectThatNobodyFails();
  // All calls were compared, because another call is noticed.
  for (int rank = 0; rank < kRanks; ++rank) {
    Tell(rank, AllReduceOf(kCalls, rank == 3 ? 5 : 4));
  }
  EXPECT_TRUE(HaveAllHeard());
}

TEST_P(CallsTest, AnotherCallOnOneRankFailsOnAllOfThem) {
  for (int rank = 0; rank < kRanks; ++rank) {
    for (uint64_t call = 0; call < 17; ++call) Tell(rank, AllReduceOf(call, 1024));
  }
  AwaitComparison<Control>(controls_);
  const auto begin = steady_clock::now();
  for (const int rank : {0, 3, 1}) Tell(rank, AllReduceOf(17, 1024));
  Tell(2, BroadcastOf(17, 8));
  ASSERT_TRUE(HaveAllHeard());
  const double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  std::printf("[ figures  ] all ranks heard of the difference within %.1f ms\n", 1000 * seconds);
  const Failure failure = *control(0).first_failure();
  EXPECT_THAT(failure.cause.text(), HasSubstr("the ranks' calls differ: call 17 is "));
  EXPECT_THAT(failure.cause.text(), HasSubstr("broadcast 17 of 8 float32 from rank 0 on rank 2"));
  EXPECT_THAT(failure.cause.text(), HasSubstr("allreduce 17 of 1024 float32, avg, dense on rank"));
  for (int rank = 0; rank < kRanks; ++rank) {
    const Status status = DescribeFailure(*control(rank).first_failure(), rank);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(status.text(), Format("rank {}: {}", rank, failure.cause.text()));
  }
}

TEST_P(CallsTest, ARankThatIsLateOrNeverTellsIsNoFailure) {
  for (const int rank : {0, 1, 2}) {
    for (uint64_t call = 0; call < 10'000; ++call) Tell(rank, AllReduceOf(call, 8));
  }
  ExpectThatNobodyFails();
  for (uint64_t call = 0; call < 100; ++call) Tell(3, AllReduceOf(call, 8));
  ExpectThatNobodyFails();
}

TEST_P(CallsTest, AGatherThatWaitsEndsWhenCallsDiffer) {
  std::jthread other([this] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    Tell(1, AllReduceOf(0, 1));
    Tell(2, AllReduceOf(0, 2));
  });
  const auto gathered = control(0).Gather({}, steady_clock::now() + std::chrono::seconds(20), "it");
  EXPECT_EQ(gathered.status().code(), Code::kMismatch);
  EXPECT_THAT(gathered.status().text(), HasSubstr("rank 0: the ranks' calls differ: call 0 is"));
}

// Errors of a rank after calls differ are consequences of the difference.
TEST_P(CallsTest, ADifferenceCountsBeforeWhatTheRankReportsAfterIt) {
  Tell(0, AllReduceOf(0, 1));
  AwaitComparison<Control>(controls_);
  Tell(1, AllReduceOf(0, 2));
  const Failure first =
      control(1).Report({.rank = 1, .is_loss = false, .cause = Error(Code::kTimeout, "too late")});
  EXPECT_TRUE(first.is_of_group);
  EXPECT_THAT(first.cause.text(), HasSubstr("the ranks' calls differ: call 0 is"));
}

TEST_P(CallsTest, CallsThatAreToldTwiceAreAFailure) {
  Tell(1, AllReduceOf(0, 1));
  Tell(1, AllReduceOf(0, 1));
  ASSERT_TRUE(HaveAllHeard());
  EXPECT_EQ(control(0).first_failure()->cause.code(), Code::kCorrupt);
  EXPECT_THAT(control(0).first_failure()->cause.text(), HasSubstr("rank 1 reports call 0"));
}

TEST_P(CallsTest, TellingNeverWaitsAndEndsWellAfterAFailure) {
  const auto begin = steady_clock::now();
  for (uint64_t call = 0; call < 1000; ++call) Tell(0, AllReduceOf(call, 1));
  const double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  std::printf("[ figures  ] telling of a call takes %.2f us\n", 1000 * seconds);
  control(1).Report({.rank = 1, .is_loss = false, .cause = Error(Code::kCorrupt, "first")});
  for (int rank = 0; rank < kRanks; ++rank) {
    for (uint64_t call = 1000; call < 20'000; ++call) Tell(rank, AllReduceOf(call, 3));
  }
  EXPECT_EQ(control(1).first_failure()->cause.text(), "first");
}

TEST_P(CallsTest, RanksMayLeaveWhileOthersTell) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([this, rank] {
      for (uint64_t call = 0; call < 200u * static_cast<unsigned>(rank + 1); ++call) {
        Tell(rank, AllReduceOf(call, 1));
      }
      controls_[static_cast<size_t>(rank)].reset();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Channels, CallsTest,
                         ::testing::Values(Channel::kThreads, Channel::kProcesses,
                                           Channel::kServerElsewhere),
                         [](const auto& info) {
                           switch (info.param) {
                             case Channel::kThreads:
                               return "Threads";
                             case Channel::kProcesses:
                               return "Processes";
                             case Channel::kServerElsewhere:
                               return "ServerElsewhere";
                           }
                           return "";
                         });

TEST(CallsMemoryTest, ARankThatFloodsTheServerTakesLittleOfIt) {
  const UniqueId id = StartControlServer();
  ControlPeer idle(id);
  idle.Send(Join{.rank = 0, .ranks = 2, .heartbeat_ms = 60'000, .loss_timeout_ms = 60'000});
  ControlPeer flood(id);
  flood.Send(Join{.rank = 1, .ranks = 2, .heartbeat_ms = 60'000, .loss_timeout_ms = 60'000});
  const size_t before = ResidentBytes();
  const std::string text(kMaxCallTextBytes, 'x');
  for (uint64_t call = 0; call < 200'000;) {
    RecordBatch calls;
    for (int i = 0; i < 39; ++i, ++call) {
      calls.records.push_back(
          {.sequence = call, .digest = static_cast<uint32_t>(call), .text = text});
    }
    flood.Send(calls);
  }
  // The server reads up to the last message, including this one.
  flood.Send(Report{.lost = {}, .cause = Error(Code::kTimeout, "done")});
  EXPECT_EQ(idle.AwaitFailure(std::chrono::seconds(20)).cause.text(), "done");
  const size_t growth = ResidentBytes() - std::min(before, ResidentBytes());
  std::printf("[ figures  ] 200000 records of %zu bytes: %.1f MB more\n", text.size(),
              static_cast<double>(growth) / 1e6);
  EXPECT_LT(growth, kMostGrowthBytes);
  idle.Send(Leave{});
  flood.Send(Leave{});
}

// If the server does not read, a rank keeps little memory and never waits.
TEST(CallsMemoryTest, AServerThatIsStoppedNeitherBlocksNorFillsARank) {
  const ServerProcess server;
  const Job job = JoinJob(server.id(), 2, {.loss_timeout = std::chrono::seconds(60)});
  server.Signal(SIGSTOP);
  const size_t before = ResidentBytes();
  constexpr uint64_t kCalls = 200'000;
  for (const auto& rank : job.ranks) rank->RecordCalls();
  for (uint64_t call = 0; call < kCalls; ++call) Post(*job.ranks[0], AllReduceOf(call, 8));
  const size_t growth = ResidentBytes() - std::min(before, ResidentBytes());
  std::printf("[ figures  ] %.1f MB more\n", static_cast<double>(growth) / 1e6);
  EXPECT_LT(growth, kMostGrowthBytes);
  server.Signal(SIGCONT);
  // It learns that calls are missing, and compares those that it has.
  AwaitComparison<ControlClient>(job.ranks);
  Post(*job.ranks[0], AllReduceOf(kCalls, 8));
  AwaitComparison<ControlClient>(job.ranks);
  EXPECT_FALSE(job.ranks[1]->first_failure().has_value());
  Post(*job.ranks[1], BroadcastOf(0, 8));
  const auto failure = AwaitFailure(*job.ranks[0]);
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->cause.text(), HasSubstr("broadcast 0 of 8 float32 from rank 0 on rank 1"));
}

TEST(CallsCommTest, ADifferencePutsTheCommunicatorOutOfUseOnAllRanks) {
  const std::vector<CommOptions> options(3);
  auto comms = ValueOrThrow(Comm::CreateLocalGroup(*Transport::Get("local").value(), options));
  for (const auto& comm : comms) comm->RecordCalls();
  Post(*comms[0], AllReduceOf(0, 1024));
  Post(*comms[1], AllReduceOf(0, 1024));
  EXPECT_FALSE(comms[2]->is_stopped());
  Post(*comms[2], AllReduceOf(0, 8));
  for (const auto& comm : comms) {
    EXPECT_TRUE(comm->is_stopped());
    const Status status = comm->CheckUsable();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.text(),
                HasSubstr(Format("rank {}: the ranks' calls differ: call 0 is allreduce 0 of 1024 "
                                 "float32, avg, dense on rank 0 and allreduce 0 of 8 float32, avg, "
                                 "dense on rank 2",
                                 comm->rank())));
    EXPECT_TRUE(comm->FindLostRanks().empty());
  }
}

TEST(CallsCommTest, OneRankHasNobodyToDifferFrom) {
  auto comms = ValueOrThrow(Comm::CreateLocalGroup(*Transport::Get("local").value(), 1, {}));
  comms[0]->RecordCalls();
  Post(*comms[0], AllReduceOf(5, 1));
  EXPECT_FALSE(comms[0]->is_stopped());
}

}  // namespace
}  // namespace onebit::testing
