// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs a test body on several ranks of one process, one thread per rank.
#pragma once

#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "onebit/onebit.h"

namespace onebit::testing {

// Calls `body(comm, rank)` for ranks 0 to n-1, each on its own thread, with communicators of one
// fresh group, and joins them all. A rank that throws or fails an ASSERT takes the group down, so
// that the others return from their collectives; the first exception is thrown again here.
template <typename Body>
void RunRanks(int n, Body body) {
  std::vector<onebitComm_t> comms(static_cast<size_t>(n), nullptr);
  if (const onebitResult_t result = onebitCommInitAll(comms.data(), n, nullptr);
      result != onebitSuccess) {
    throw std::runtime_error(std::string("onebitCommInitAll: ") + onebitGetLastError(nullptr));
  }

  std::mutex mutex;
  std::exception_ptr first_exception;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      const onebitComm_t comm = comms[static_cast<size_t>(rank)];
      bool failed = false;
      try {
        body(comm, rank);
        failed = ::testing::Test::HasFatalFailure();
      } catch (...) {
        failed = true;
        const std::lock_guard lock(mutex);
        if (!first_exception) first_exception = std::current_exception();
      }
      if (failed) onebitCommAbort(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const onebitComm_t comm : comms) onebitCommDestroy(comm);
  if (first_exception) std::rethrow_exception(first_exception);
}

}  // namespace onebit::testing
