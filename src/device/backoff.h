// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How a thread waits for something that tells nobody.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace onebit {

// Looks at what is awaited often while it may come at once, and then less and less.
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
