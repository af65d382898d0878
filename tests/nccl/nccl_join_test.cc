// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport nccl on a communicator of the application.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/nccl/nccl_join.h"
#include "tests/support/cuda/cuda_stand_in.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Modes, JoinTest, ::testing::ValuesIn(kModes), NameOf);

void SendAround(Rank& self) {
  Buffer out(100);
  Buffer in(100);
  const int next = (self.rank + 1) % self.ranks;
  const int previous = (self.rank + self.ranks - 1) % self.ranks;
  out.Set(std::vector<uint8_t>(100, static_cast<uint8_t>(self.rank)), *self.stream);
  EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
  EXPECT_EQ(self.endpoint->Send(next, out.at(0), 100, *self.stream), onebitSuccess);
  EXPECT_EQ(self.endpoint->Receive(previous, in.at(0), 100, *self.stream), onebitSuccess);
  EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess) << Plugin::warnings();
  self.stream->Await();
  EXPECT_EQ(in.Read(*self.stream), std::vector<uint8_t>(100, static_cast<uint8_t>(previous)));
}

TEST_P(JoinTest, UsesTheCommunicatorAndMakesNone) {
  const uint64_t before = Counts::Get(GetParam()).created;
  RunJoined(3, [&](Rank& self, ncclComm_t comm) {
    SendAround(self);
    self.endpoint->Close();
    self.meet();
    // It is still usable by the application.
    int count = 0;
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommCount)(comm, &count), ncclSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommDestroy)(comm), ncclSuccess);
  });
  EXPECT_EQ(Counts::Get(GetParam()).created - before, 3u);
}

TEST_P(JoinTest, BroadcastsBytesOfRank0) {
  const ncclUniqueId id = MakeId();
  RunThreads(3, [&](int rank) {
    ncclComm_t comm = Make(id, rank, 3);
    const Joined joined = Join(&comm);
    ASSERT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
    std::vector<uint8_t> expected(128);
    std::iota(expected.begin(), expected.end(), uint8_t{1});
    std::vector<uint8_t> bytes = rank == 0 ? expected : std::vector<uint8_t>(128);
    EXPECT_EQ(Plugin::functions().broadcast(joined.group, bytes.data(), bytes.size(), kTimeoutMs),
              onebitSuccess)
        << Plugin::warnings();
    EXPECT_EQ(bytes, expected);
    EXPECT_EQ(Plugin::functions().broadcast(joined.group, bytes.data(), 0, kTimeoutMs),
              onebitSuccess);
    Release(joined);
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommDestroy)(comm), ncclSuccess);
  });
  EXPECT_EQ(onebitTestCudaAllocatedBytes(0), 0u);
}

// During a capture CUDA forbids many calls to all threads, and ends the capture if one is made.
TEST_P(JoinTest, BroadcastsWhileAnotherThreadCaptures) {
  const ncclUniqueId id = MakeId();
  AddressExchange exchange(3);
  RunThreads(3, [&](int rank) {
    if (rank == 2) {
      const Stream stream;
      CUgraph graph = nullptr;
      ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
      exchange.Wait();
      exchange.Wait();
      EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
      EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
      return;
    }
    ncclComm_t comm = Make(id, rank, 2);
    const Joined joined = Join(&comm);
    EXPECT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
    exchange.Wait();
    uint8_t byte = rank == 0 ? 9 : 0;
    EXPECT_EQ(Plugin::functions().broadcast(joined.group, &byte, 1, kTimeoutMs), onebitSuccess)
        << Plugin::warnings();
    EXPECT_EQ(byte, 9);
    exchange.Wait();
    Release(joined);
    End(comm);
  });
}

TEST_P(JoinTest, BroadcastEndsWhenItsTimeIsOver) {
  const ncclUniqueId id = MakeId();
  AddressExchange exchange(2);
  RunThreads(2, [&](int rank) {
    ncclComm_t comm = Make(id, rank, 2);
    const Joined joined = Join(&comm, sizeof comm, rank == 0 ? 300 : kTimeoutMs);
    ASSERT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
    // Waits for the device, or for the first message of a non-blocking communicator.
    if (rank == 0 && GetParam().name == "NonBlocking") {
      uint8_t bytes[16] = {};
      EXPECT_EQ(Plugin::functions().broadcast(joined.group, bytes, sizeof bytes, 300),
                onebitTimeout);
      EXPECT_THAT(Plugin::warnings(), HasSubstr("ncclBroadcast"));
      EXPECT_EQ(Plugin::functions().broadcast(joined.group, bytes, sizeof bytes, 300),
                onebitTimeout);
    }
    exchange.Wait();
    Release(joined);
    End(comm);
  });
}

TEST_P(JoinTest, RefusesWhatIsNoCommunicator) {
  ncclComm_t none = nullptr;
  EXPECT_EQ(Join(nullptr, 0).result, onebitInvalidUsage);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("no communicator of all processes"));
  EXPECT_EQ(Join(&none, 4).result, onebitInvalidArgument);
  EXPECT_EQ(Join(&none).result, onebitInvalidArgument);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("the communicator is NULL"));
}

TEST_P(JoinTest, RefusesAnotherDevice) {
  const UseDevice device(3);
  ncclComm_t comm = Make(MakeId(), 0, 1);
  {
    const UseDevice other(1);
    EXPECT_EQ(Join(&comm).result, onebitInvalidUsage);
    EXPECT_THAT(Plugin::warnings(), HasSubstr("is on device 3, but device 1 is current"));
  }
  const Joined joined = Join(&comm);
  ASSERT_EQ(joined.result, onebitSuccess);
  {
    const UseDevice other(1);
    Endpoint endpoint;
    EXPECT_EQ(endpoint.Open(plugin_, 0, 1, 1, joined.group), onebitInvalidUsage);
  }
  Endpoint endpoint;
  EXPECT_EQ(endpoint.Open(plugin_, 0, 2, 1, joined.group), onebitInvalidArgument);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("has this process as rank 0 of 1"));
  Release(joined);
  End(comm);
}

TEST_P(JoinTest, RefusesAThreadWithoutADevice) {
  ncclComm_t comm = nullptr;
  {
    const UseDevice device(0);
    comm = Make(MakeId(), 0, 1);
  }
  EXPECT_EQ(Join(&comm).result, onebitInvalidUsage);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("no device is current"));
  End(comm);
}

TEST_P(JoinTest, RefusesACommunicatorThatHasFailed) {
  const UseDevice device(2);
  ncclComm_t comm = Make(MakeId(), 0, 1);
  ONEBIT_OF_MODE(GetParam(), onebitTestNcclBreak)(2, ncclSystemError, "no socket");
  EXPECT_EQ(Join(&comm).result, onebitSystemError);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("cannot be used"));
  End(comm);
}

// A blocking communicator is ready when it has been created.
class NonBlockingJoinTest : public JoinTest {};

INSTANTIATE_TEST_SUITE_P(Modes, NonBlockingJoinTest, ::testing::Values(kModes.front()), NameOf);

TEST_P(NonBlockingJoinTest, WaitsForACommunicatorInTheMaking) {
  const UseDevice device(0);
  ncclComm_t comm = Make(MakeId(), 0, 2);
  EXPECT_EQ(Join(&comm, sizeof comm, 100).result, onebitTimeout);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("not ready within 100 ms"));
  End(comm);
}

TEST_P(JoinTest, AbortStopsTheCommunicatorAndLeavesItToItsOwner) {
  const uint64_t revoked = Counts::Get(GetParam()).revoked;
  const uint64_t aborted = Counts::Get(GetParam()).aborted;
  RunJoined(2, [&](Rank& self, ncclComm_t comm) {
    SendAround(self);
    Buffer buffer(10);
    if (self.rank == 0) {
      EXPECT_EQ(self.endpoint->Receive(1, buffer.at(0), 10, *self.stream), onebitSuccess);
    }
    std::thread([&] { EXPECT_EQ(self.endpoint->Abort(), onebitSuccess); }).join();
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitAborted);
    self.endpoint->Close();
    // 2.10 cannot stop it and leave it to its owner, so the owner must abort it.
    if (is_old()) {
      EXPECT_THAT(Plugin::warnings(), HasSubstr("NCCL 2.10.3 cannot stop a communicator"));
    } else {
      EXPECT_EQ(Plugin::warnings(), "");
    }
    if (!is_old()) self.stream->Await();
    self.meet();
    if (is_old()) {
      End(comm);
    } else {
      EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclCommDestroy)(comm), ncclSuccess);
    }
    self.stream->Await();
  });
  EXPECT_EQ(Counts::Get(GetParam()).revoked - revoked, is_old() ? 0u : 2u);
  EXPECT_EQ(Counts::Get(GetParam()).aborted - aborted, is_old() ? 2u : 0u);
}

TEST_P(JoinTest, AbortSaysThatTheCommunicatorWasNotStopped) {
  if (is_old()) GTEST_SKIP() << "2.10 cannot stop it";
  RunJoined(2, [&](Rank& self, ncclComm_t comm) {
    if (self.rank == 0) {
      ONEBIT_OF_MODE(GetParam(), onebitTestNcclFail)("ncclCommRevoke", 1, ncclSystemError);
      EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      EXPECT_THAT(Plugin::warnings(), HasSubstr("must call ncclCommAbort: unhandled system"));
    }
    self.meet();
    End(comm);
  });
}

// An application that ends its communicator nevertheless gets only NCCL's own behaviour.
TEST_P(NonBlockingJoinTest, AbortLeavesARevocationThatTakesLong) {
  const auto hold = ONEBIT_OF_MODE(GetParam(), onebitTestNcclHoldRevoke);
  RunJoined(1, [&](Rank& self, ncclComm_t comm) {
    hold(1);
    EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
    EXPECT_THAT(Plugin::warnings(), HasSubstr("within 5000 ms and is still trying"));
    End(comm);
    hold(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // the revocation goes on
  });
}

// Its functions would read structures that another version has laid out.
TEST(OtherNcclTest, RefusesACommunicatorOfAnotherNccl) {
  const std::string other = std::string(ONEBIT_NCCL_STAND_INS) + "/libnccl-2.10.so";
  const Plugin plugin({{"ONEBIT_NCCL_LIB", other}});
  ASSERT_EQ(plugin.start_result(), onebitSuccess) << Plugin::warnings();
  const UseDevice device(0);
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  void* group = nullptr;
  int rank = -1;
  int ranks = -1;
  EXPECT_EQ(Plugin::functions().adopt(plugin.transport_context(), &comm, sizeof comm, kTimeoutMs,
                                      &group, &rank, &ranks),
            onebitInvalidUsage);
  EXPECT_THAT(Plugin::warnings(), HasSubstr("libnccl-2.10.so, but to the program's own"));
  EXPECT_THAT(Plugin::warnings(), HasSubstr("set ONEBIT_NCCL_LIB to /"));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

}  // namespace
}  // namespace onebit::testing
