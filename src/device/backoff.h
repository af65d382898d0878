// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Exponential back-off for polling a condition that has no wake-up event.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace onebit {

// Yields for 20 microseconds, then sleeps for growing times of up to 200 microseconds.
class Backoff {
 public:
  void Pause() {
    if (Clock::now() - begin_ < std::chrono::microseconds(20)) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, std::chrono::microseconds(200));
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  std::chrono::microseconds pause_{5};
};

}  // namespace onebit
