// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Part of every program that expects no allocations or locks: checks that the counters work there.
#include <cstdlib>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/lock_counter.h"
#include "tests/support/sanitizers.h"

namespace onebit::testing {
namespace {

TEST(CountersTest, Count) {
  const uint64_t allocations = AllocationsOfThisThread();
  const std::vector<int> numbers(100);
  EXPECT_GT(AllocationsOfThisThread(), allocations);
  EXPECT_EQ(numbers[99], 0);
#if !ONEBIT_HAS_SANITIZER
  const uint64_t before = AllocationsOfThisThread();
  void* volatile memory = std::aligned_alloc(64, 640);  // volatile: else it may be left out
  std::free(memory);
  EXPECT_GT(AllocationsOfThisThread(), before);
  const uint64_t locks = LocksOfThisThread();
  std::mutex mutex;
  mutex.lock();
  mutex.unlock();
  EXPECT_EQ(LocksOfThisThread(), locks + 1);
#endif
}

}  // namespace
}  // namespace onebit::testing
