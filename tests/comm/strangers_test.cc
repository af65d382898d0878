// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Strangers at the control port: whatever they send, or do not send, a job of four ranks joins,
// nobody else does, and memory and descriptors do not grow.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control_peer.h"
#include "tests/support/deadlines.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/process_figures.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tcp_proxy.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Sanitizers keep freed memory for a while.
constexpr size_t kMostGrowthBytes = ONEBIT_HAS_SANITIZER != 0 ? 256 << 20 : 8 << 20;

// Takes counts before and after a test, at whose end everything it opened must be gone.
class StrangersTest : public ::testing::Test {
 protected:
  StrangersTest() {
    // Allocates everything that the first use keeps for good.
    JoinJob(StartControlServer(), 2);
    ThreadsSettleAt(threads_before_, kTestTimeout);
    descriptors_before_ = OpenDescriptors();
    resident_before_ = ResidentBytes();
  }

  void TearDown() override {
    EXPECT_TRUE(ThreadsSettleAt(threads_before_, kTestTimeout)) << Threads() << " threads are left";
    EXPECT_TRUE(DescriptorsSettleAt(descriptors_before_, kTestTimeout))
        << OpenDescriptors() - descriptors_before_ << " descriptors are left";
    EXPECT_LE(ResidentBytes(), resident_before_ + kMostGrowthBytes);
  }

  // All of the job's ranks join, and then the port is closed.
  void ExpectThatAJobJoins(const UniqueId& id) {
    Job job = JoinJob(id, 4);
    job.ranks.clear();
    const auto late = Connect(id.address, std::chrono::steady_clock::now() + kTestTimeout);
    EXPECT_FALSE(late.ok()) << "the port is open after all ranks have joined";
  }

  static void SendText(const Descriptor& socket, std::string_view text) {
    // The server may have closed it already.
    static_cast<void>(
        SendAll(socket, text.data(), text.size(), std::chrono::steady_clock::now() + kTestTimeout));
  }

  const size_t threads_before_ = Threads();
  size_t descriptors_before_ = 0;
  size_t resident_before_ = 0;
};

TEST_F(StrangersTest, AClientWithAnotherSecretIsToldSoAndServedNothing) {
  const UniqueId id = StartControlServer();
  UniqueId wrong = id;
  wrong.key.bytes[0] ^= 1;
  const auto client = ControlClient::Join(
      {.rank = 0, .ranks = 4, .process = "a:1"}, [&](Deadline) { return Result<UniqueId>(wrong); },
      true);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), Code::kNotAuthenticated);
  EXPECT_THAT(client.status().text(), HasSubstr(id.address.Text()));
  EXPECT_THAT(client.status().text(), HasSubstr("another secret"));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AWrongProofIsTurnedAway) {
  const UniqueId id = StartControlServer();
  const Descriptor socket = ConnectTo(id.address);
  const ClientHello hello = MakeClientHello();
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  OrThrow(SendAll(socket, &hello, sizeof(hello), deadline));
  ServerHello answer;
  OrThrow(ReceiveAll(socket, &answer, sizeof(answer), deadline));
  // Sends the server's own proof back.
  OrThrow(SendAll(socket, answer.proof.data(), answer.proof.size(), deadline));
  EXPECT_TRUE(IsClosedWithin(socket, kTestTimeout));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AReplayedSessionIsTurnedAway) {
  // Uses the same key again, as jobs in succession with ONEBIT_SECRET do.
  const UniqueId id = StartControlServer();
  TcpProxy recorder(id.address);
  {
    ControlPeer honest({.address = recorder.address(), .key = id.key});
    honest.Send(Gather{});  // no join, so the hub closes without a failure
    EXPECT_TRUE(IsClosedWithin(honest.socket(), kTestTimeout));
  }
  const Bytes said = recorder.Finish();
  ASSERT_GT(said.size(), sizeof(ClientHello) + sizeof(Proof));
  for (int times = 0; times < 3; ++times) {
    const Descriptor replay = ConnectTo(id.address);
    OrThrow(
        SendAll(replay, said.data(), said.size(), std::chrono::steady_clock::now() + kTestTimeout));
    EXPECT_TRUE(IsClosedWithin(replay, kTestTimeout));
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, GarbageIsTurnedAway) {
  const UniqueId id = StartControlServer();
  std::mt19937 random(5);
  std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nX: yyyyyyyyyy\r\n",
      "\x16\x03\x01\x02" + std::string(500, '\x01'),
      std::string(100'000, '\0'),
      "onebitC2" + std::string(64, 'x'),
      "onebitC1" + std::string(64, 'x'),
      "onebitI1" + std::string(120, '\0')};
  for (int i = 0; i < 100; ++i) {
    garbage.emplace_back(40 + random() % 2000, '\0');
    for (char& byte : garbage.back()) byte = static_cast<char>(random());
  }
  for (const std::string& bytes : garbage) {
    const Descriptor socket = ConnectTo(id.address);
    SendText(socket, bytes);
    EXPECT_TRUE(IsClosedWithin(socket, kTestTimeout)) << bytes.substr(0, 8);
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, PortScannersDoNoHarm) {
  const UniqueId id = StartControlServer();
  for (int i = 0; i < 1000; ++i) {
    const Descriptor socket = ConnectTo(id.address);
    if (i % 2 == 0) continue;
    const linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AThousandIdleConnectionsKeepNobodyOut) {
  const UniqueId id = StartControlServer();
  const size_t descriptors = OpenDescriptors();
  std::vector<Descriptor> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(ConnectTo(id.address));
  EXPECT_TRUE(
      DescriptorsSettleAt(descriptors + idle.size() + LinkServer::kMaxStrangers, kTestTimeout))
      << OpenDescriptors() - descriptors - idle.size() << " strangers are let wait";
  EXPECT_GE(OpenDescriptors(), descriptors + idle.size() + LinkServer::kMaxStrangers / 2);
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, ConnectionsWithoutPauseKeepNobodyOut) {
  const UniqueId id = StartControlServer();
  std::atomic<bool> is_over{false};
  std::atomic<int> connections{0};
  std::thread flood([&] {
    std::vector<Descriptor> held;
    while (!is_over) {
      auto socket = Connect(id.address, std::chrono::steady_clock::now() + kTestTimeout);
      if (!socket.ok()) continue;  // the port is closed
      ++connections;
      held.push_back(std::move(socket).value());
      if (held.size() == 500) held.clear();
    }
  });
  while (connections < 600) std::this_thread::sleep_for(milliseconds(1));
  ExpectThatAJobJoins(id);
  is_over = true;
  flood.join();
  std::printf("[ figures  ] %d connections meanwhile\n", connections.load());
}

TEST_F(StrangersTest, WhoIsSlowHasAsMuchTimeAsWhoIsSilent) {
  const milliseconds handshake{300};
  const UniqueId id = StartControlServer({.handshake_timeout = handshake});
  const auto begin = std::chrono::steady_clock::now();
  const Descriptor silent = ConnectTo(id.address);
  const Descriptor slow = ConnectTo(id.address);
  const Descriptor half = ConnectTo(id.address);
  const ClientHello hello = MakeClientHello();
  const auto* bytes = reinterpret_cast<const char*>(&hello);
  SendText(half, {bytes, sizeof(hello) / 2});
  // 40 bytes at this speed would take two seconds.
  size_t sent = 0;
  for (; sent < sizeof(hello) && !IsClosedWithin(slow, milliseconds(50)); ++sent) {
    SendText(slow, {bytes + sent, 1});
  }
  EXPECT_LT(sent, sizeof(hello));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, handshake);
  EXPECT_TRUE(IsClosedWithin(silent, kTestTimeout));
  EXPECT_TRUE(IsClosedWithin(half, kTestTimeout));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, WhoProvesItselfAndDoesNotJoinMustGo) {
  const UniqueId id = StartControlServer({.handshake_timeout = milliseconds(PacedMs(300))});
  const ControlPeer peer(id);
  const Descriptor with_answer = ConnectTo(id.address);
  const ClientHello hello = MakeClientHello();
  OrThrow(
      SendAll(with_answer, &hello, sizeof(hello), std::chrono::steady_clock::now() + kTestTimeout));
  EXPECT_FALSE(IsClosedWithin(peer.socket(), milliseconds(100)));
  EXPECT_TRUE(IsClosedWithin(peer.socket(), kTestTimeout));
  EXPECT_TRUE(IsClosedWithin(with_answer, kTestTimeout));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, NotMoreThanALimitMayProveThemselvesAndWait) {
  const UniqueId id = StartControlServer();
  const size_t descriptors = OpenDescriptors();
  std::vector<std::unique_ptr<ControlPeer>> peers;
  for (size_t i = 0; i < LinkServer::kMaxStrangers + 50; ++i) {
    peers.push_back(std::make_unique<ControlPeer>(id));
  }
  EXPECT_TRUE(
      DescriptorsSettleAt(descriptors + peers.size() + LinkServer::kMaxStrangers, kTestTimeout));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, ALengthBeyondTheLimitEndsTheConnection) {
  const UniqueId id = StartControlServer();
  for (const uint32_t length : {0u, 15u, 0xffff'ffffu, 0x7fff'ffffu, 9000u}) {
    ControlPeer peer(id);
    peer.SendRaw(ByteWriter().Integer(length).Take());
    EXPECT_TRUE(IsClosedWithin(peer.socket(), kTestTimeout)) << length;
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AFrameWithoutMeaningEndsTheConnection) {
  const UniqueId id = StartControlServer();
  ControlPeer peer(id);
  Bytes frame = peer.Frame(Join{.rank = 0, .ranks = 4});
  frame.back() ^= std::byte{1};
  peer.SendRaw(frame);
  EXPECT_TRUE(IsClosedWithin(peer.socket(), kTestTimeout));
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AReplayedFrameOfARankIsNoticedByAll) {
  const UniqueId id = StartControlServer();
  ControlPeer other(id);
  other.Send(Join{.rank = 0, .ranks = 2, .heartbeat_ms = 1000, .loss_timeout_ms = 5000});
  ControlPeer peer(id);
  peer.Send(Join{.rank = 1, .ranks = 2, .process = "peer:1"});
  const Bytes frame = peer.Frame(RankAlive{});
  peer.SendRaw(frame);
  peer.SendRaw(frame);
  EXPECT_TRUE(IsClosedWithin(peer.socket(), kTestTimeout));
  const Failure failure = other.AwaitFailure(kTestTimeout);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_TRUE(failure.is_loss);
  EXPECT_THAT(failure.cause.text(), HasSubstr("the seal of control frame 2 is broken"));
  other.Send(Leave{});
}

TEST_F(StrangersTest, AServerWithoutDescriptorsWaitsAndDoesNotSpin) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  const UniqueId id = StartControlServer();
  {
    const DescriptorLimit limit(1);
    const Descriptor waiting = ConnectTo(id.address);  // takes the last descriptor
    const double before = CpuSeconds();
    EXPECT_FALSE(IsClosedWithin(waiting, milliseconds(400)));
    const double used = CpuSeconds() - before;
    std::printf("[ figures  ] %.1f ms of processor time in 400 ms\n", 1000 * used);
    EXPECT_LT(used, 0.04);
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, AClientWithoutDescriptorsSaysSo) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  const UniqueId id = StartControlServer();
  {
    const DescriptorLimit limit(0);
    const auto client = ControlClient::Join(
        {.rank = 0, .ranks = 4, .connect_timeout = milliseconds(300), .process = "a:1"},
        [&](Deadline) { return Result<UniqueId>(id); }, true);
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.status().code(), Code::kTimeout);
    EXPECT_THAT(client.status().text(), HasSubstr("Too many open files"));
  }
  ExpectThatAJobJoins(id);
}

TEST_F(StrangersTest, ServersWithoutDescriptorsAreAnError) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  const DescriptorLimit limit(0);
  const auto started = ControlServer::Start({.address = LoopbackAddress(), .key = RandomKey()});
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.status().code(), Code::kSystemError);
  EXPECT_THAT(started.status().text(), HasSubstr("Too many open files"));
}

}  // namespace
}  // namespace onebit::testing
