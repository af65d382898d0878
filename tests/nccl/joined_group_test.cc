// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Groups of joined communicators and others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/nccl_join.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

class JoinedGroupTest : public JoinTest {};

INSTANTIATE_TEST_SUITE_P(Modes, JoinedGroupTest, ::testing::ValuesIn(kModes), NameOf);

// A blocking one that was created here, and a joined one that does not block.
TEST_P(JoinedGroupTest, IsGroupedWithOneThatDiffersInBlocking) {
  if (is_old()) GTEST_SKIP() << "all of 2.10 block";
  const ncclUniqueId id = MakeId();
  AddressExchange exchange(2);
  RunThreads(2, [&](int rank) {
    ncclComm_t comm = MakeOfKind(id, rank, 2, GetParam().name != "Blocking");
    const Joined joined = Join(&comm);
    ASSERT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
    const Stream stream;
    {
      Endpoint endpoints[2];
      EXPECT_EQ(endpoints[0].Open(plugin_, rank, 2, 9, joined.group), onebitSuccess);
      EXPECT_EQ(endpoints[1].Open(plugin_, rank, 2, 10), onebitSuccess);
      Release(joined);
      for (Endpoint& endpoint : endpoints) {
        EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitSuccess);
        exchange.Wait();
      }
      Buffer out(100);
      Buffer in(200);
      out.Set(std::vector<uint8_t>(100, static_cast<uint8_t>(rank + 1)), stream);
      for (Endpoint& endpoint : endpoints) EXPECT_EQ(endpoint.GroupBegin(), onebitSuccess);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(endpoints[i].Send(1 - rank, out.at(0), 100, stream), onebitSuccess);
        EXPECT_EQ(endpoints[i].Receive(1 - rank, in.at(100 * i), 100, stream), onebitSuccess);
      }
      for (Endpoint& endpoint : endpoints) {
        EXPECT_EQ(endpoint.GroupEnd(), onebitSuccess) << Plugin::warnings();
      }
      stream.Await();
      EXPECT_EQ(in.Read(stream), std::vector<uint8_t>(200, static_cast<uint8_t>(2 - rank)));
      exchange.Wait();
    }
    End(comm);
  });
}

// The first of the two waits for a peer that does not come. When it does, NCCL has freed the second
// one.
TEST_P(JoinedGroupTest, AGroupEndsWhenAnyOfItIsAborted) {
  if (GetParam().name != "Blocking") GTEST_SKIP() << "the joined one is to be started first";
  const ncclUniqueId id = MakeId();
  AddressExchange exchange(2);
  RunThreads(2, [&](int rank) {
    ncclComm_t comm = MakeOfKind(id, rank, 2, false);
    const Joined joined = Join(&comm);
    ASSERT_EQ(joined.result, onebitSuccess) << Plugin::warnings();
    const Stream stream;
    Buffer buffer(2);
    {
      Endpoint endpoints[2];
      EXPECT_EQ(endpoints[0].Open(plugin_, rank, 2, 9, joined.group), onebitSuccess);
      EXPECT_EQ(endpoints[1].Open(plugin_, rank, 2, 10), onebitSuccess);
      Release(joined);
      for (Endpoint& endpoint : endpoints) {
        EXPECT_EQ(endpoint.Connect(exchange.Exchange(rank, endpoint.Address())), onebitSuccess);
        exchange.Wait();
      }
      if (rank == 0) {
        std::thread aborter([&] {
          EXPECT_TRUE(AwaitOtherThreadsAsleep());
          EXPECT_EQ(endpoints[1].Abort(), onebitSuccess);
          exchange.Wait();
        });
        for (Endpoint& endpoint : endpoints) EXPECT_EQ(endpoint.GroupBegin(), onebitSuccess);
        for (Endpoint& endpoint : endpoints) {
          EXPECT_EQ(endpoint.Send(1, buffer.at(0), 1, stream), onebitSuccess);
          EXPECT_EQ(endpoint.Receive(1, buffer.at(1), 1, stream), onebitSuccess);
        }
        EXPECT_EQ(endpoints[0].GroupEnd(), onebitSuccess);
        EXPECT_EQ(endpoints[1].GroupEnd(), onebitAborted);
        // Nobody can tell any more what is on the streams.
        EXPECT_EQ(endpoints[0].AsyncError(), onebitAborted);
        EXPECT_THAT(Plugin::warnings(), HasSubstr("another communicator of the group"));
        aborter.join();
      } else {
        exchange.Wait();
        EXPECT_EQ(endpoints[0].GroupBegin(), onebitSuccess);
        EXPECT_EQ(endpoints[0].Send(0, buffer.at(0), 1, stream), onebitSuccess);
        EXPECT_EQ(endpoints[0].Receive(0, buffer.at(1), 1, stream), onebitSuccess);
        EXPECT_EQ(endpoints[0].GroupEnd(), onebitSuccess) << Plugin::warnings();
      }
      exchange.Wait();
    }
    End(comm);
    stream.Await();
  });
}

// Threads with endpoints of the same two communicators, which begin with different ones.
TEST_P(JoinedGroupTest, ThreadsThatGroupTheSameDoNotWaitForEachOther) {
  const UseDevice device(0);
  ncclComm_t comms[2];
  Joined joined[2];
  for (int i = 0; i < 2; ++i) {
    comms[i] = Make(MakeId(), 0, 1);
    joined[i] = Join(&comms[i]);
    ASSERT_EQ(joined[i].result, onebitSuccess) << Plugin::warnings();
  }
  const auto exchange = [&](int first) {
    const UseDevice current(0);
    const Stream stream;
    Endpoint endpoints[2];
    for (int i = 0; i < 2; ++i) {
      void* const group = joined[(first + i) % 2].group;
      EXPECT_EQ(endpoints[i].Open(plugin_, 0, 1, 9, group), onebitSuccess);
      EXPECT_EQ(endpoints[i].Connect({endpoints[i].Address()}), onebitSuccess);
    }
    Buffer buffer(2);
    for (int round = 0; round < 100; ++round) {
      for (Endpoint& endpoint : endpoints) EXPECT_EQ(endpoint.GroupBegin(), onebitSuccess);
      for (Endpoint& endpoint : endpoints) {
        EXPECT_EQ(endpoint.Send(0, buffer.at(0), 1, stream), onebitSuccess);
        EXPECT_EQ(endpoint.Receive(0, buffer.at(1), 1, stream), onebitSuccess);
      }
      for (Endpoint& endpoint : endpoints) {
        EXPECT_EQ(endpoint.GroupEnd(), onebitSuccess) << Plugin::warnings();
      }
    }
    stream.Await();
  };
  std::thread other(exchange, 1);
  exchange(0);
  other.join();
  for (int i = 0; i < 2; ++i) {
    Release(joined[i]);
    End(comms[i]);
  }
}

// The group waits for the lock of one communicator while NCCL frees another one that it holds.
TEST_P(JoinedGroupTest, AGroupThatWaitsForItsTurnDoesNotUseWhatWasAborted) {
  if (GetParam().name != "Blocking") GTEST_SKIP() << "no call waits in NCCL, or all 2.10 can free";
  const ncclUniqueId id = MakeId();
  std::promise<void> is_over;
  std::thread peer([&, over = is_over.get_future()]() mutable {
    const UseDevice other(1);
    ncclComm_t comm = Make(id, 1, 2);
    over.wait();
    const Stream stream;
    Buffer buffer(1);
    EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), ncclRecv)(buffer.at(0), 1, ncclInt8, 0, comm, stream),
              ncclSuccess);
    stream.Await();
    End(comm);
  });
  bool was_held = false;
  {
    const UseDevice device(0);
    Endpoint own;
    Endpoint joined[2];  // for the group, and for the one that delays it
    const auto open = [&](Endpoint* endpoint, int ranks, uint64_t comm_id, void* group) {
      EXPECT_EQ(endpoint->Open(plugin_, 0, ranks, comm_id, group), onebitSuccess);
      const std::vector all(static_cast<size_t>(ranks), endpoint->Address());
      EXPECT_EQ(endpoint->Connect(all), onebitSuccess) << Plugin::warnings();
    };
    open(&own, 1, 8, nullptr);
    ncclComm_t comm = Make(id, 0, 2);
    // A group orders its communicators by address: of many of the same size, the last one comes
    // after the first.
    std::vector<Joined> groups;
    for (int i = 0; i < 64; ++i) {
      groups.push_back(Join(&comm));
      EXPECT_EQ(groups.back().result, onebitSuccess) << Plugin::warnings();
    }
    for (Endpoint& endpoint : joined) open(&endpoint, 2, 9, groups.back().group);
    for (const Joined& one : groups) Release(one);
    const Stream streams[2];
    Buffer buffer(2);
    std::thread waiting([&] {
      const UseDevice current(0);
      EXPECT_EQ(joined[1].Send(1, buffer.at(0), 1, streams[1]), onebitSuccess);
    });
    EXPECT_TRUE(AwaitOtherThreadsAsleep());
    std::thread grouping([&] {
      const UseDevice current(0);
      EXPECT_EQ(joined[0].GroupBegin(), onebitSuccess);
      EXPECT_EQ(own.GroupBegin(), onebitSuccess);
      EXPECT_EQ(joined[0].Send(1, buffer.at(0), 1, streams[0]), onebitSuccess);
      EXPECT_EQ(own.Send(0, buffer.at(0), 1, streams[0]), onebitSuccess);
      EXPECT_EQ(own.Receive(0, buffer.at(1), 1, streams[0]), onebitSuccess);
      EXPECT_EQ(own.GroupEnd(), onebitSuccess);
      EXPECT_EQ(joined[0].GroupEnd(), onebitAborted);
    });
    // No event tells that a group waits for its turn, and its thread is awake.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(own.Abort(), onebitSuccess);
    was_held = Plugin::warnings().find("was aborted during an NCCL call") != std::string::npos;
    is_over.set_value();
    waiting.join();
    grouping.join();
    peer.join();
    End(comm);
    for (const Stream& stream : streams) stream.Await();
  }
  if (!was_held) GTEST_SKIP() << "the joined one was to be taken before the other one";
}

}  // namespace
}  // namespace onebit::testing
