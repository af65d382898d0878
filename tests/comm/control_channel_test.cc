// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Clients and server of the control channel over loopback: missing ranks, lost ranks, and how
// everything ends.
#include <netinet/tcp.h>

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control_peer.h"
#include "tests/support/deadlines.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/process_figures.h"
#include "tests/support/sanitizers.h"
#include "tests/support/server_process.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

Result<std::unique_ptr<ControlClient>> JoinOne(const UniqueId& id, int rank, int ranks,
                                               ControlClient::Options options = {}) {
  options.rank = rank;
  options.ranks = ranks;
  options.process = "rank:" + std::to_string(rank);
  return ControlClient::Join(
      options, [id](Deadline) { return Result<UniqueId>(id); }, true);
}

// A process that has ended is lost because its connection ends, long before this.
const ControlClient::Options kNoLossBySilence = {.loss_timeout = std::chrono::minutes(5)};

bool IsPortClosedInTheEnd(const SocketAddress& address) {
  const auto deadline = steady_clock::now() + kTestTimeout;
  while (steady_clock::now() < deadline) {
    if (!Connect(address, deadline).ok()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST(ControlChannelTest, AGatherThatIsLateNamesTheMissingRanks) {
  const UniqueId id = StartControlServer();
  // Heartbeats are too rare to bring the list.
  const auto client = ValueOrThrow(JoinOne(id, 1, 4));
  const auto late = client->Gather({}, steady_clock::now() + milliseconds(300), "testing");
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), Code::kTimeout);
  EXPECT_THAT(late.status().text(),
              HasSubstr("rank 1 of 4: testing: ranks 0 2 3 missing (3 of 4) after "));
  EXPECT_GE(NumberAfter(late.status().text(), "(3 of 4) after "), 0.3 - kRounding);
  EXPECT_THAT(late.status().text(), HasSubstr(id.address.Text()));
}

TEST(ControlChannelTest, TheListOfTheMissingIsUpToDate) {
  const UniqueId id = StartControlServer();
  const auto client = ValueOrThrow(JoinOne(id, 0, 3, {.heartbeat = milliseconds(50)}));
  const milliseconds timeout(PacedMs(300));
  // The second rank joins while the first one waits, and stays longer.
  std::thread second([&] {
    std::this_thread::sleep_for(timeout / 2);  // within the first one's wait
    auto joined = ValueOrThrow(JoinOne(id, 1, 3, {.heartbeat = milliseconds(50)}));
    static_cast<void>(joined->Gather({}, steady_clock::now() + 3 * timeout, "testing"));
  });
  const auto late = client->Gather({}, steady_clock::now() + timeout, "testing");
  EXPECT_THAT(late.status().text(), HasSubstr("rank 2 missing (1 of 3)"));
  second.join();
}

TEST(ControlChannelTest, ASilentRankIsLostForAllOthers) {
  const UniqueId id = StartControlServer();
  const milliseconds loss_timeout(ShortTimeoutMs());
  const ControlClient::Options options = {.heartbeat = milliseconds(100),
                                          .loss_timeout = loss_timeout};
  ControlPeer silent(id);
  silent.Send(Join{.rank = 2,
                   .ranks = 3,
                   .heartbeat_ms = 100,
                   .loss_timeout_ms = static_cast<uint32_t>(loss_timeout.count()),
                   .process = "silent:3"});
  const auto first = ValueOrThrow(JoinOne(id, 0, 3, options));
  const auto second = ValueOrThrow(JoinOne(id, 1, 3, options));
  for (const auto* client : {first.get(), second.get()}) {
    const auto failure = AwaitFailure(*client);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->rank, 2);
    EXPECT_TRUE(failure->is_loss);
    EXPECT_EQ(failure->cause.code(), Code::kPeerLost);
    EXPECT_GE(
        NumberAfter(failure->cause.text(), "its process silent:3 has been silent for ") + kRounding,
        std::chrono::duration<double>(loss_timeout).count())
        << failure->cause.text();
  }
}

TEST(ControlChannelTest, RanksThatSpeakAreNotLost) {
  const UniqueId id = StartControlServer();
  const milliseconds loss_timeout(ShortTimeoutMs());
  const Job job = JoinJob(id, 3, {.heartbeat = milliseconds(50), .loss_timeout = loss_timeout});
  std::this_thread::sleep_for(2.25 * loss_timeout);  // in which a silent rank would be lost
  for (const auto& client : job.ranks) EXPECT_FALSE(client->first_failure().has_value());
}

TEST(ControlChannelTest, MoreRanksMayComeAtOnceThanStrangersMayWait) {
  constexpr int kRanks = LinkServer::kMaxStrangers + 50;
  const Job job = JoinJob(StartControlServer(), kRanks);
  for (const auto& client : job.ranks) EXPECT_FALSE(client->first_failure().has_value());
}

TEST(ControlChannelTest, AReportReachesAllAndTheFirstOneWins) {
  const UniqueId id = StartControlServer();
  const Job job = JoinJob(id, 3);
  const Failure first =
      job.ranks[1]->Report({.rank = 1, .is_loss = false, .cause = Error(Code::kCorrupt, "first")});
  EXPECT_EQ(first.rank, 1);
  const Failure second =
      job.ranks[2]->Report({.rank = 2, .is_loss = false, .cause = Error(Code::kTimeout, "second")});
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.cause.text(), "first");
  EXPECT_EQ(AwaitFailure(*job.ranks[0])->cause.text(), "first");
}

TEST(ControlChannelTest, AGatherBeyondTheLimitIsRefusedHere) {
  const UniqueId id = StartControlServer();
  const Job job = JoinJob(id, 1);
  const auto gathered = job.ranks[0]->Gather(
      Bytes(kMaxContentBytes + 1), steady_clock::now() + kTestTimeout, "exchanging addresses");
  ASSERT_FALSE(gathered.ok());
  EXPECT_THAT(gathered.status().text(), HasSubstr("exchanging addresses: 8193 bytes"));
}

TEST(ControlChannelTest, AStartThatFailedDoesNotSpinWhileARankStays) {
  const UniqueId id = StartControlServer({.failure_linger = milliseconds(50)});
  ControlPeer peer(id);
  peer.Send(Join{.rank = 0, .ranks = 2, .heartbeat_ms = 1000, .loss_timeout_ms = 5000});
  peer.Send(Report{.lost = {}, .cause = Error(Code::kCorrupt, "x")});
  peer.AwaitFailure(kTestTimeout);
  std::this_thread::sleep_for(milliseconds(100));  // longer than it lingers
  const double before = CpuSeconds();
  std::this_thread::sleep_for(milliseconds(300));  // while the cost is measured
  EXPECT_LT(CpuSeconds() - before, 0.03);
  // After the rank has left the server ends and closes its port.
  peer.Send(Leave{});
  EXPECT_TRUE(IsClosedWithin(peer.socket(), kTestTimeout));
  EXPECT_TRUE(IsPortClosedInTheEnd(id.address));
}

TEST(ControlChannelTest, AServerToWhomNobodyComesGivesUp) {
  const UniqueId id = StartControlServer({.first_rank_timeout = milliseconds(100)});
  EXPECT_TRUE(Connect(id.address, steady_clock::now() + kTestTimeout).ok());
  EXPECT_TRUE(IsPortClosedInTheEnd(id.address));
}

TEST(ControlChannelTest, AServerWaitsAsLongAsARankIsThere) {
  const milliseconds first_rank_timeout(PacedMs(100));
  const UniqueId id = StartControlServer({.first_rank_timeout = first_rank_timeout});
  ControlPeer peer(id);
  peer.Send(Join{.rank = 0, .ranks = 2, .heartbeat_ms = 1000, .loss_timeout_ms = 5000});
  std::this_thread::sleep_for(3 * first_rank_timeout);  // a server without ranks would have ended
  EXPECT_TRUE(Connect(id.address, steady_clock::now() + kTestTimeout).ok());
}

TEST(ControlChannelTest, MessagesGoOutAtOnce) {
  const Descriptor listener = ValueOrThrow(Listen(LoopbackAddress()));
  const Descriptor client = ConnectTo(ValueOrThrow(LocalAddress(listener)));
  OrThrow(AwaitReadable(listener, steady_clock::now() + kTestTimeout));
  const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
  for (const Descriptor* socket : {&client, &accepted}) {
    int value = 0;
    socklen_t size = sizeof(value);
    ASSERT_EQ(getsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    EXPECT_NE(value, 0);
  }
}

TEST(ServerProcessTest, WhenItIsKilledItsRankIsLostAtOnce) {
  const ServerProcess server;
  const Job job = JoinJob(server.id(), 3, kNoLossBySilence);
  server.Signal(SIGKILL);
  for (const auto& client : job.ranks) {
    const auto failure = AwaitFailure(*client);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->rank, 0);
    EXPECT_TRUE(failure->is_loss);
    EXPECT_EQ(failure->cause.code(), Code::kPeerLost);
    EXPECT_THAT(failure->cause.text(), HasSubstr("which holds the control channel"));
    EXPECT_THAT(failure->cause.text(), HasSubstr(server.id().address.Text()));
  }
}

TEST(ServerProcessTest, WhenItIsKilledAGatherEndsAtOnce) {
  const ServerProcess server;
  const auto client = ValueOrThrow(JoinOne(server.id(), 1, 2, kNoLossBySilence));
  std::thread killer([&] {
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    server.Signal(SIGKILL);
  });
  const auto gathered = client->Gather({}, steady_clock::now() + kTestTimeout, "testing");
  killer.join();
  EXPECT_EQ(gathered.status().code(), Code::kPeerLost);
  EXPECT_THAT(gathered.status().text(), HasSubstr("rank 1: rank 0 is gone"));
}

TEST(ServerProcessTest, WhenItIsStoppedItsSilenceIsNoticed) {
  const ServerProcess server;
  const milliseconds loss_timeout(ShortTimeoutMs());
  const Job job =
      JoinJob(server.id(), 2, {.heartbeat = milliseconds(100), .loss_timeout = loss_timeout});
  server.Signal(SIGSTOP);
  const auto failure = AwaitFailure(*job.ranks[1]);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 0);
  EXPECT_GE(NumberAfter(failure->cause.text(), "has been silent for ") + kRounding,
            std::chrono::duration<double>(loss_timeout).count());
}

TEST(ServerProcessTest, WhenDescriptorsAreShortStrangersGoFirst) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  // Eight descriptors for four ranks and the process's own, and a few more.
  const ServerProcess server("16");
  std::vector<Descriptor> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(ConnectTo(server.id().address));
  const Job job = JoinJob(server.id(), 4);
}

// Ranks are not declared lost for the time in which the stopped server could not hear them.
TEST(ServerProcessTest, WhenItWasStoppedForAWhileItBlamesNobody) {
  const ServerProcess server;
  const Job job =
      JoinJob(server.id(), 2, {.heartbeat = milliseconds(100), .loss_timeout = milliseconds(3000)});
  server.Signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(900));  // it hears nothing of nine heartbeats
  server.Signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(300));  // in which it would blame somebody
  EXPECT_FALSE(job.ranks[0]->first_failure().has_value());
}

TEST(IdleTest, AnIdleGroupCostsNextToNothing) {
  if (ONEBIT_HAS_SANITIZER) GTEST_SKIP() << "instrumented code says nothing of the cost";
  const Job job = JoinJob(StartControlServer(), 4, {.heartbeat = milliseconds(1000)});
  constexpr double kSeconds = 2.1;
  const double before = CpuSeconds();
  const uint64_t sleeps_before = Sleeps();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));  // while it is measured
  const double used = CpuSeconds() - before;
  const uint64_t sleeps = Sleeps() - sleeps_before;
  std::printf(
      "[ figures  ] four idle ranks and their server: %llu wake-ups and %.3f ms in %.1f s, "
      "%.4f %% of a core\n",
      static_cast<unsigned long long>(sleeps), 1000 * used, kSeconds, 100 * used / kSeconds);
  // Each second has a heartbeat of each rank and of the server. A loop that polls wakes up far more
  // often, and the time that a wake-up takes depends on what else the machine does.
  EXPECT_LE(sleeps, 40u);
  EXPECT_LT(used / kSeconds, 0.05);  // nor does it go round without ever waiting
}

}  // namespace
}  // namespace onebit::testing
