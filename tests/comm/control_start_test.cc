// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The first start of the control thread, which happens once per process.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control_peer.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/process_figures.h"
#include "tests/support/server_process.h"

namespace onebit::testing {
namespace {

TEST(ControlStartTest, AStartThatLackedDescriptorsCanBeRepeated) {
  ONEBIT_SKIP_IF_SANITIZER_NEEDS_DESCRIPTORS();
  const size_t threads = Threads();
  // It needs three descriptors: the port, and two of the thread's own.
  for (size_t more = 0; more < 3; ++more) {
    const DescriptorLimit limit(more);
    const auto started = ControlServer::Start({.address = LoopbackAddress(), .key = RandomKey()});
    ASSERT_FALSE(started.ok()) << more;
    EXPECT_EQ(started.status().code(), Code::kSystemError);
    EXPECT_THAT(started.status().text(), ::testing::HasSubstr("Too many open files"));
  }
  {
    const ServerProcess server;
    const Job job = JoinJob(server.id(), 1);
    server.Signal(SIGKILL);
    EXPECT_TRUE(AwaitFailure(*job.ranks[0]).has_value());
  }
  // No connection is left whose end could wake the thread.
  EXPECT_TRUE(ThreadsSettleAt(threads, std::chrono::milliseconds(2000)))
      << "the control thread was not woken to end";
}

}  // namespace
}  // namespace onebit::testing
