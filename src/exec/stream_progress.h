// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Tracks the stream-ordered calls in progress, for deadlines. Streams count the calls that have
// ended in pinned memory, so that the age of a call is known without CUDA's driver, which another
// thread may hold up for as long as a call lasts.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "device/devices.h"

namespace onebit {

// One thread begins and adds calls, another one polls. Calls beyond the capacity are not tracked;
// those before them are.
class StreamProgress {
 public:
  static constexpr uint32_t kMostCalls = 64;
  using Clock = std::chrono::steady_clock;

  // `ended` is in pinned memory and 0.
  explicit StreamProgress(uint32_t* ended) : ended_(ended) {}

  // Marks the begin of a call's enqueuing, which may block itself. Add or Drop must follow.
  void Begin();
  void Drop();
  // Call after the last operation of a call was enqueued on its stream.
  Status Add(const Devices& devices, onebitStream_t stream);
  // Time since the oldest call began or another one ended, whichever is later; zero if there is
  // none. Makes no CUDA call.
  Clock::duration Age();

 private:
  uint32_t* const ended_;  // written by streams: the number of the newest call that has ended
  std::array<Clock::time_point, kMostCalls> begins_;
  // Begin of the call being enqueued; the epoch if there is none.
  std::atomic<Clock::time_point> begin_{};
  std::atomic<uint32_t> added_{0};
  std::atomic<uint32_t> seen_{0};  // ended calls of which the polling thread knows
  Clock::time_point last_end_;     // used by the polling thread
};

}  // namespace onebit
