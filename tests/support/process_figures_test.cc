// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/process_figures.h"

namespace onebit::testing {
namespace {

using std::chrono::milliseconds;

TEST(OtherThreadsTest, AThreadThatComputesIsNotAsleep) {
  std::atomic<bool> is_over{false};
  const std::jthread computing([&] {
    while (!is_over) continue;
  });
  EXPECT_FALSE(AwaitOtherThreadsAsleep(milliseconds(300)));
  is_over = true;
}

TEST(OtherThreadsTest, ThreadsThatWaitOrPollAreAsleep) {
  std::atomic<bool> is_over{false};
  const std::jthread waiting([&] { is_over.wait(false); });
  const std::jthread polling([&] {
    while (!is_over) std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
  EXPECT_TRUE(AwaitOtherThreadsAsleep());
  is_over = true;
  is_over.notify_all();
}

}  // namespace
}  // namespace onebit::testing
