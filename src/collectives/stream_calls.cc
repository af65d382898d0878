// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/stream_calls.h"

#include <algorithm>

namespace onebit {

Status StreamCalls::Create(const Devices& devices) {
  for (DeviceEvent& event : events_) {
    ONEBIT_ASSIGN_OR_RETURN(event, DeviceEvent::Create(devices));
  }
  return OkStatus();
}

void StreamCalls::Begin() { begin_.store(Clock::now(), std::memory_order_release); }
void StreamCalls::Drop() { begin_.store({}, std::memory_order_release); }

Status StreamCalls::Add(const Devices& devices, onebitStream_t stream) {
  const uint32_t number = added_.load(std::memory_order_relaxed);
  const Clock::time_point begin = begin_.load(std::memory_order_relaxed);
  if (number - ended_.load(std::memory_order_acquire) != kMostCalls) {
    begins_[number % kMostCalls] = begin;
    ONEBIT_TRY(devices.Record(events_[number % kMostCalls].get(), stream));
    added_.store(number + 1, std::memory_order_release);
  }
  Drop();
  return OkStatus();
}

Result<StreamCalls::Clock::duration> StreamCalls::Age(const Devices& devices) {
  const auto now = Clock::now();
  uint32_t number = ended_.load(std::memory_order_relaxed);
  for (; number != added_.load(std::memory_order_acquire); ++number) {
    const uint32_t slot = number % kMostCalls;
    ONEBIT_ASSIGN_OR_RETURN(const bool is_done, devices.IsDone(events_[slot].get()));
    if (!is_done) return now - std::max(begins_[slot], last_end_);
    last_end_ = now;
    ended_.store(number + 1, std::memory_order_release);
  }
  const Clock::time_point begin = begin_.load(std::memory_order_acquire);
  return begin == Clock::time_point{} ? Clock::duration::zero() : now - std::max(begin, last_end_);
}

}  // namespace onebit
