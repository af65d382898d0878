// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exponential back-off for polling a condition that has no wake-up event. Needs nothing but the
// standard library, so plugins use it too.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace onebit {

// Yields while the condition may come true at once, then sleeps ever longer.
class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds shortest = std::chrono::microseconds(5),
                   std::chrono::microseconds longest = std::chrono::microseconds(200))
      : pause_(shortest), longest_(longest) {}

  void Pause() {
    if (Clock::now() - begin_ < std::chrono::microseconds(20)) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, longest_);
  }
  std::chrono::microseconds next_pause() const { return pause_; }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds pause_;
  const std::chrono::microseconds longest_;
};

using PollDeadline = std::chrono::steady_clock::time_point;
inline constexpr PollDeadline kNoDeadline = PollDeadline::max();

// `timeout_ms` from now, at most a year, so that the addition cannot overflow.
inline PollDeadline DeadlineAfter(uint64_t timeout_ms) {
  constexpr uint64_t kYearMs = uint64_t{1000} * 60 * 60 * 24 * 365;
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(std::min(timeout_ms, kYearMs));
}

// Waits until `ready`, and returns true; or until `failed` or the deadline, and returns false.
// Checks both conditions at least once, `ready` first.
template <typename Ready, typename Failed>
bool PollUntil(PollDeadline deadline, Ready ready, Failed failed) {
  for (Backoff backoff;; backoff.Pause()) {
    if (ready()) return true;
    if (failed() || std::chrono::steady_clock::now() >= deadline) return false;
  }
}
template <typename Ready>
bool PollUntil(PollDeadline deadline, Ready ready) {
  return PollUntil(deadline, ready, [] { return false; });
}

}  // namespace onebit
