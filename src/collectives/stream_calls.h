// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Which stream-ordered calls are under way, for a deadline.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "device/devices.h"

namespace onebit {

// One thread begins and adds calls, another one looks at them. Calls beyond the room are not seen:
// those before them are.
class StreamCalls {
 public:
  static constexpr uint32_t kMostCalls = 64;
  using Clock = std::chrono::steady_clock;

  // For the current device.
  Status Create(const Devices& devices);

  // A call is about to be enqueued, which may not end either: Add or Drop follows.
  void Begin();
  void Drop();
  // Behind the last operation of a call on its stream.
  Status Add(const Devices& devices, onebitStream_t stream);
  // How long the oldest call has been under way without another one ending; zero if there is none.
  Result<Clock::duration> Age(const Devices& devices);

 private:
  std::array<DeviceEvent, kMostCalls> events_;
  std::array<Clock::time_point, kMostCalls> begins_;
  // Of the call that is being enqueued; the epoch: there is none.
  std::atomic<Clock::time_point> begin_{};
  std::atomic<uint32_t> added_{0};
  std::atomic<uint32_t> ended_{0};
  Clock::time_point last_end_;  // the looking thread's
};

}  // namespace onebit
