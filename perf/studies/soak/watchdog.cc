// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A thread sleeps until a deadline that every note moves.
#include "perf/studies/soak/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::soak {

Watchdog::Watchdog(std::string tool, std::chrono::milliseconds timeout)
    : tool_(std::move(tool)),
      timeout_(timeout),
      deadline_(std::chrono::steady_clock::now() + timeout),
      last_("start"),
      thread_([this](const std::stop_token& stop) { Watch(stop); }) {}

void Watchdog::Note(std::string what) {
  const std::lock_guard lock(mutex_);
  deadline_ = std::chrono::steady_clock::now() + timeout_;
  last_ = std::move(what);
}

void Watchdog::Watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (std::chrono::steady_clock::now() >= deadline_) {
      fmt::print(stderr, "{}: nothing has happened for {} s after {}\n", tool_,
                 static_cast<double>(timeout_.count()) / 1000, last_);
      std::fflush(stderr);
      // Threads are stuck, so nothing can be cleaned up.
      std::_Exit(perf::kExitFailed);
    }
    // Only a request to stop ends the wait early.
    changed_.wait_until(lock, stop, deadline_, [] { return false; });
  }
}

}  // namespace onebit::soak
