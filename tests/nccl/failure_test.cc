// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Transport nccl in trouble: aborts, errors of NCCL and of callers, and ends with unfinished work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/nccl/modes.h"
#include "tests/nccl/ranks.h"
#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using ::testing::HasSubstr;

class FailureTest : public ::testing::TestWithParam<Mode> {
 protected:
  // No handle may have been used after its end, or by two threads at once, and all must have ended.
  void TearDown() override {
    const Counts counts = Counts::GetAtTheEnd(GetParam());
    EXPECT_EQ(counts.after_end, 0u);
    EXPECT_EQ(counts.at_a_time, 0u);
    EXPECT_EQ(counts.freed_in_graph, 0u);
    EXPECT_EQ(counts.live_comms, 0u);
    // 2.10 has no other way to end a call that waits.
    if (GetParam().library.empty()) {
      EXPECT_EQ(counts.freed_in_call - freed_in_call_before_, freed_in_call_);
    }
  }
  const Plugin plugin_{GetParam().settings};
  const uint64_t freed_in_call_before_ = Counts::Get(GetParam()).freed_in_call;
  uint64_t freed_in_call_ = 0;  // expected by a test
};

INSTANTIATE_TEST_SUITE_P(Modes, FailureTest, ::testing::ValuesIn(kModes), NameOf);

// Both ranks have exchanged messages, so no message is the first.
void Greet(Rank& self) {
  Buffer buffer(2);
  EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
  EXPECT_EQ(self.endpoint->Send(1 - self.rank, buffer.at(0), 1, *self.stream), onebitSuccess);
  EXPECT_EQ(self.endpoint->Receive(1 - self.rank, buffer.at(1), 1, *self.stream), onebitSuccess);
  EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
  self.stream->Await();
}

TEST_P(FailureTest, AbortEndsWorkThatWaitsOnTheDevice) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Greet(self);
    if (self.rank == 0) {
      Buffer buffer(10);
      EXPECT_EQ(self.endpoint->Receive(1, buffer.at(0), 10, *self.stream), onebitSuccess);
      EXPECT_FALSE(self.stream->IsIdle());
      std::thread([&] { EXPECT_EQ(self.endpoint->Abort(), onebitSuccess); }).join();
      self.stream->Await();
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitAborted);
      EXPECT_EQ(self.endpoint->Receive(1, buffer.at(0), 10, *self.stream), onebitAborted);
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitAborted);
      EXPECT_EQ(self.endpoint->AllReduce(buffer.at(0), buffer.at(0), 1, onebitFloat32, onebitSum,
                                         *self.stream),
                onebitAborted);
      EXPECT_EQ(self.endpoint->AsyncError(), onebitAborted);
      EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
    }
    self.meet();
  });
}

TEST_P(FailureTest, AbortEndsACallThatWaitsForAPeer) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    if (self.rank == 0) {
      Buffer buffer(10);
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      });
      // The first message to a peer that never has one for this rank.
      EXPECT_EQ(self.endpoint->Send(1, buffer.at(0), 10, *self.stream), onebitAborted);
      aborter.join();
      self.stream->Await();
    }
    self.meet();
  });
}

// The call was ended by an operation that freed nothing.
TEST_P(FailureTest, AnAbortedCallThatWaitedLeavesNothing) {
  const Counts before = Counts::Get(GetParam());
  RunRanks(plugin_, 2, [&](Rank& self) {
    if (self.rank == 0) {
      Buffer buffer(10);
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
        const Counts after = Counts::Get(GetParam());
        EXPECT_EQ(after.created - before.created, 2u);
        EXPECT_EQ(after.live_comms - before.live_comms, 1u) << "it waits for its end";
      });
      EXPECT_EQ(self.endpoint->Send(1, buffer.at(0), 10, *self.stream), onebitAborted);
      aborter.join();
      self.stream->Await();
    }
    self.meet();
  });
  const Counts after = Counts::Get(GetParam());
  EXPECT_EQ(after.revoked - before.revoked, GetParam().name == "Blocking" ? 1u : 0u);
}

// NCCL frees a revoked communicator while graphs still hold it, and their end uses it.
TEST_P(FailureTest, AnAbortedCallLeavesACommunicatorThatAGraphHolds) {
  if (GetParam().name != "Blocking") GTEST_SKIP() << "it is not revoked";
  RunRanks(plugin_, 2, [&](Rank& self) {
    Buffer buffer(10);
    const Graph graph(*self.stream, [&] {
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
      EXPECT_EQ(self.endpoint->Send(1 - self.rank, buffer.at(0), 1, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->Receive(1 - self.rank, buffer.at(1), 1, *self.stream),
                onebitSuccess);
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
    });
    // Later work without a capture must not make the library forget the graph.
    Greet(self);
    if (self.rank == 0) {
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      });
      EXPECT_EQ(self.endpoint->AllReduce(buffer.at(0), buffer.at(0), 1, onebitFloat32, onebitSum,
                                         *self.stream),
                onebitAborted);
      aborter.join();
      EXPECT_THAT(Plugin::warnings(), HasSubstr("its memory is not freed"));
    }
    self.meet();
  });
  EXPECT_EQ(ONEBIT_OF_MODE(GetParam(), onebitTestNcclFreeRevoked)(), 1u);
}

TEST_P(FailureTest, AnAbortedCallLeavesACommunicatorThatNcclIsAtWorkOn) {
  if (GetParam().name != "Blocking") GTEST_SKIP() << "it is not revoked";
  const auto hold = ONEBIT_OF_MODE(GetParam(), onebitTestNcclHoldRevoke);
  RunRanks(plugin_, 2, [&](Rank& self) {
    if (self.rank == 0) {
      Buffer buffer(10);
      hold(1);
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
        EXPECT_THAT(Plugin::warnings(), HasSubstr("within 5000 ms and is still trying"));
        hold(0);
      });
      EXPECT_EQ(self.endpoint->Send(1, buffer.at(0), 10, *self.stream), onebitAborted);
      aborter.join();
      self.stream->Await();
    }
    self.meet();
  });
  const auto free_revoked = ONEBIT_OF_MODE(GetParam(), onebitTestNcclFreeRevoked);
  unsigned freed = 0;  // the revocation ends on its own
  for (int i = 0; i < 60'000 && (freed = free_revoked()) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(freed, 1u);
}

// When it revokes, NCCL raises its flags only for a moment, and then clears them.
TEST_P(FailureTest, AbortEndsACallThatARevocationHasMissed) {
  if (GetParam().name != "Blocking") GTEST_SKIP() << "it is not revoked";
  const Counts before = Counts::Get(GetParam());
  freed_in_call_ = 1;
  RunRanks(plugin_, 2, [&](Rank& self) {
    if (self.rank == 0) {
      Buffer buffer(10);
      ONEBIT_OF_MODE(GetParam(), onebitTestNcclFail)("ncclCommRevoke", 1, ncclSuccess);
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitOtherThreadsAsleep());
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      });
      EXPECT_EQ(self.endpoint->Send(1, buffer.at(0), 10, *self.stream), onebitAborted);
      aborter.join();
      EXPECT_THAT(Plugin::warnings(), HasSubstr("did not end when it was revoked"));
      self.stream->Await();
    }
    self.meet();
  });
  const Counts after = Counts::Get(GetParam());
  EXPECT_EQ(after.revoked - before.revoked, 1u);
  EXPECT_EQ(after.aborted - before.aborted, 1u);
}

TEST_P(FailureTest, AbortMayComeAtAnyTime) {
  for (int delay_us = 0; delay_us < 3000; delay_us += 300) {
    RunRanks(plugin_, 2, [&](Rank& self) {
      Greet(self);
      std::thread aborter([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));  // at any time
        EXPECT_EQ(self.endpoint->Abort(), onebitSuccess);
      });
      Buffer buffer(200);
      onebitResult_t result = onebitSuccess;
      while (result == onebitSuccess) {
        result = self.endpoint->GroupBegin();
        if (result != onebitSuccess) break;
        static_cast<void>(self.endpoint->Send(1 - self.rank, buffer.at(0), 100, *self.stream));
        static_cast<void>(self.endpoint->Receive(1 - self.rank, buffer.at(100), 100, *self.stream));
        result = self.endpoint->GroupEnd();
      }
      EXPECT_EQ(result, onebitAborted);
      aborter.join();
      self.stream->Await();
    });
  }
}

TEST_P(FailureTest, TellsOfAnErrorThatCameAfterTheCall) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Greet(self);
    std::string text;
    EXPECT_EQ(self.endpoint->AsyncError(&text), onebitSuccess);
    EXPECT_EQ(text, "");
    self.meet();
    if (self.rank == 0) {
      ONEBIT_OF_MODE(GetParam(), onebitTestNcclBreak)(0, ncclRemoteError, "the cable is out");
      EXPECT_EQ(self.endpoint->AsyncError(&text), onebitRemoteError);
      EXPECT_THAT(text, HasSubstr("network error"));
      // 2.10 has no text of its own.
      if (GetParam().library.empty()) {
        EXPECT_THAT(text, HasSubstr("the cable is out"));
      }
      // The error stays, and nothing more is started.
      const uint64_t sends = Counts::Get(GetParam()).sends;
      Buffer buffer(1);
      EXPECT_EQ(self.endpoint->Send(1, buffer.at(0), 1, *self.stream), onebitRemoteError);
      EXPECT_EQ(Counts::Get(GetParam()).sends, sends);
      EXPECT_EQ(self.endpoint->AsyncError(), onebitRemoteError);
    }
    self.meet();
  });
}

TEST_P(FailureTest, MayBeAskedForErrorsWhileAnotherThreadCalls) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Greet(self);
    std::atomic<bool> is_over{false};
    std::thread watcher([&] {
      while (!is_over.load()) EXPECT_EQ(self.endpoint->AsyncError(), onebitSuccess);
    });
    for (int round = 0; round < 30; ++round) Greet(self);
    is_over = true;
    watcher.join();
    self.meet();
  });
}

TEST_P(FailureTest, NoticesSizesThatDoNotMatch) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Buffer buffer(20);
    const size_t bytes = self.rank == 0 ? 10 : 20;
    const auto result = self.rank == 0
                            ? self.endpoint->Send(1, buffer.at(0), bytes, *self.stream)
                            : self.endpoint->Receive(0, buffer.at(0), bytes, *self.stream);
    // A call that NCCL finishes in the background may report it already.
    EXPECT_TRUE(result == onebitSuccess || result == onebitInvalidUsage) << result;
    self.stream->Await();
    self.meet();
    EXPECT_EQ(self.endpoint->AsyncError(), onebitInvalidUsage);
    self.meet();
  });
}

TEST_P(FailureTest, LeavesNoGroupOpenAfterAnError) {
  const auto depth = ONEBIT_OF_MODE(GetParam(), onebitTestNcclGroupDepth);
  const auto fail = ONEBIT_OF_MODE(GetParam(), onebitTestNcclFail);
  for (const char* function : {"ncclSend", "ncclRecv", "ncclGroupEnd", "ncclGroupStart"}) {
    RunRanks(plugin_, 1, [&](Rank& self) {
      Buffer buffer(2);
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
      EXPECT_EQ(self.endpoint->Send(0, buffer.at(0), 1, *self.stream), onebitSuccess);
      EXPECT_EQ(self.endpoint->Receive(0, buffer.at(1), 1, *self.stream), onebitSuccess);
      fail(function, 1, ncclSystemError);
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitSystemError);
      EXPECT_THAT(Plugin::warnings(), HasSubstr(function));
      EXPECT_EQ(depth(), 0);
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSystemError);
    });
  }
}

TEST_P(FailureTest, RefusesWrongArguments) {
  const auto check = [&](auto call) {
    RunRanks(plugin_, 1, [&](Rank& self) {
      const uint64_t sends = Counts::Get(GetParam()).sends;
      EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
      EXPECT_EQ(call(self), onebitInvalidArgument);
      // A group that lacks a message does not start.
      EXPECT_EQ(self.endpoint->GroupEnd(), onebitInvalidArgument);
      EXPECT_EQ(Counts::Get(GetParam()).sends, sends);
    });
  };
  Buffer* none = nullptr;
  char memory[4];
  check([&](Rank& self) { return self.endpoint->Send(1, memory, 1, *self.stream); });
  check([&](Rank& self) { return self.endpoint->Send(-1, memory, 1, *self.stream); });
  check([&](Rank& self) { return self.endpoint->Send(0, none, 1, *self.stream); });
  check([&](Rank& self) { return self.endpoint->Receive(1, memory, 1, *self.stream); });
  check([&](Rank& self) {
    return self.endpoint->AllReduce(memory, nullptr, 1, onebitFloat32, onebitSum, *self.stream);
  });
  check([&](Rank& self) {
    return self.endpoint->AllReduce(memory, memory, 1, onebitFloat32, static_cast<onebitRedOp_t>(1),
                                    *self.stream);
  });
  check([&](Rank& self) {
    return self.endpoint->AllReduce(memory, memory, 1, static_cast<onebitDataType_t>(3), onebitSum,
                                    *self.stream);
  });
}

TEST_P(FailureTest, RefusesGroupsInsideGroups) {
  RunRanks(plugin_, 1, [&](Rank& self) {
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitInvalidUsage);
  });
  RunRanks(plugin_, 1,
           [&](Rank& self) { EXPECT_EQ(self.endpoint->GroupEnd(), onebitInvalidUsage); });
}

TEST_P(FailureTest, HasNoFrameFace) {
  const onebitTransport& table = Endpoint::table();
  EXPECT_EQ(table.getLink, nullptr);
  EXPECT_EQ(table.sendFrame, nullptr);
  EXPECT_EQ(table.progress, nullptr);
  EXPECT_EQ(table.sleep, nullptr);
}

TEST_P(FailureTest, EndsInOrderWithoutErrors) {
  const Counts before = Counts::Get(GetParam());
  RunRanks(plugin_, 2, [&](Rank& self) { Greet(self); });
  const Counts after = Counts::Get(GetParam());
  EXPECT_EQ(after.destroyed - before.destroyed, 2u);
  EXPECT_EQ(after.aborted, before.aborted);
  // 2.10 has no ncclCommFinalize.
  EXPECT_EQ(after.finalized - before.finalized, GetParam().library.empty() ? 2u : 0u);
}

// Ends a communicator of a single rank, which NCCL has created at once, with unfinished work.
// Returns the log.
std::string EndWithWorkUnderWay(const Plugin& plugin) {
  std::string warnings;
  std::atomic<bool> is_open{false};
  RunRanks(plugin, 1, [&](Rank& self) {
    Buffer buffer(2);
    ASSERT_EQ(cuLaunchHostFunc(
                  *self.stream,
                  [](void* open) {
                    while (!static_cast<std::atomic<bool>*>(open)->load()) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }
                  },
                  &is_open),
              CUDA_SUCCESS);
    EXPECT_EQ(self.endpoint->GroupBegin(), onebitSuccess);
    EXPECT_EQ(self.endpoint->Send(0, buffer.at(0), 1, *self.stream), onebitSuccess);
    EXPECT_EQ(self.endpoint->Receive(0, buffer.at(1), 1, *self.stream), onebitSuccess);
    EXPECT_EQ(self.endpoint->GroupEnd(), onebitSuccess);
    self.endpoint->Close();
    warnings = Plugin::warnings();
    is_open = true;
    self.stream->Await();
  });
  return warnings;
}

// A communicator whose construction NCCL has finished need not block.
TEST_P(FailureTest, KnowsAtItsEndThatItDoesNotBlock) {
  if (GetParam().name != "NonBlocking") GTEST_SKIP() << "it blocks";
  const Counts before = Counts::Get(GetParam());
  EXPECT_THAT(EndWithWorkUnderWay(plugin_), HasSubstr("aborted when it was closed"));
  EXPECT_EQ(Counts::Get(GetParam()).aborted - before.aborted, 1u);
}

// NCCL's own variable overrides the configuration.
TEST_P(FailureTest, KnowsThatTheEnvironmentSaysWhetherItBlocks) {
  const bool blocks = GetParam().name != "NonBlocking";
  const bool can_choose = GetParam().library.empty();
  ASSERT_EQ(setenv("NCCL_COMM_BLOCKING", blocks ? "0" : "1", 1), 0);
  const std::string warnings = EndWithWorkUnderWay(plugin_);
  ASSERT_EQ(unsetenv("NCCL_COMM_BLOCKING"), 0);
  EXPECT_THAT(warnings, HasSubstr(can_choose && blocks ? "aborted when it was closed"
                                                       : "so it is left to NCCL"));
}

TEST_P(FailureTest, DoesNotWaitForAPeerAtItsEnd) {
  RunRanks(plugin_, 2, [&](Rank& self) {
    Greet(self);
    Buffer buffer(10);
    if (self.rank == 0) {
      EXPECT_EQ(self.endpoint->Receive(1, buffer.at(0), 10, *self.stream), onebitSuccess);
      self.endpoint->Close();
      EXPECT_THAT(Plugin::warnings(), HasSubstr("did not finish within 300 ms"));
    }
    self.meet();
    // A blocking communicator is left to NCCL with its pending message: send it.
    if (self.rank == 1 && GetParam().name != "NonBlocking") {
      EXPECT_EQ(self.endpoint->Send(0, buffer.at(0), 10, *self.stream), onebitSuccess);
      self.stream->Await();
    }
    self.meet();
    self.stream->Await();
  });
}

}  // namespace
}  // namespace onebit::testing
