// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How the host waits for a device whose stream may wait for other ranks.
#pragma once

#include <chrono>

#include "base/status.h"
#include "device/backoff.h"
#include "device/devices.h"

namespace onebit {

// Until all before the last record of `event` is done. `find_failure` returns what is wrong with
// the communicator that the stream depends on: then streams go on, calls let go of what they work
// on, and when they have done so this returns that failure. However late the caller's own work on
// the stream is, nothing takes hours but a device that does not answer.
template <typename FindFailure>
Status AwaitEvent(const Devices& devices, const DeviceEvent& event, FindFailure find_failure) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::hours kMostTime{1};
  constexpr std::chrono::seconds kTimeToStop{20};
  Clock::time_point end = Clock::now() + kMostTime;
  Status failure;
  for (Backoff backoff;; backoff.Pause()) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_done, devices.IsDone(event.get()));
    if (failure.ok()) {
      failure = find_failure();
      if (!failure.ok()) end = Clock::now() + kTimeToStop;
    }
    if (is_done) return failure;
    if (Clock::now() < end) continue;
    if (!failure.ok()) return failure;
    return Error(Code::kTimeout, "a CUDA stream has not come to the end of its work for {} h",
                 kMostTime.count());
  }
}

}  // namespace onebit
