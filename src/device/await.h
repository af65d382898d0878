// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Makes the host wait for a stream that may itself wait for other ranks.
#pragma once

#include <chrono>

#include "base/status.h"
#include "device/devices.h"
#include "wait/backoff.h"

namespace onebit {

// Waits until all work before the last record of `event` has completed. `find_failure` returns the
// failure, if any, of the communicator that the stream depends on. After a failure streams continue
// and calls release their buffers; once that has happened the failure is returned. Work queued
// before us may legitimately be slow, so without a failure we give up only after one hour.
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
    return Error(Code::kTimeout, "a CUDA stream has not finished its work within {} h",
                 kMostTime.count());
  }
}

}  // namespace onebit
