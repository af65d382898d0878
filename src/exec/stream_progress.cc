// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/stream_progress.h"

#include <algorithm>

#include "exec/stream_turns.h"

namespace onebit {

void StreamProgress::Begin() { begin_.store(Clock::now(), std::memory_order_release); }
void StreamProgress::Drop() { begin_.store({}, std::memory_order_release); }

Status StreamProgress::Add(const Devices& devices, onebitStream_t stream) {
  const uint32_t number = added_.load(std::memory_order_relaxed);
  const Clock::time_point begin = begin_.load(std::memory_order_relaxed);
  if (number - seen_.load(std::memory_order_acquire) != kMostCalls) {
    begins_[number % kMostCalls] = begin;
    ONEBIT_TRY(devices.WriteValue(stream, ended_, number + 1));
    added_.store(number + 1, std::memory_order_release);
  }
  Drop();
  return OkStatus();
}

StreamProgress::Clock::duration StreamProgress::Age() {
  const auto now = Clock::now();
  uint32_t number = seen_.load(std::memory_order_relaxed);
  for (; number != added_.load(std::memory_order_acquire); ++number) {
    if (!HasReached(*ended_, number + 1)) {
      return now - std::max(begins_[number % kMostCalls], last_end_);
    }
    last_end_ = now;
    seen_.store(number + 1, std::memory_order_release);
  }
  const Clock::time_point begin = begin_.load(std::memory_order_acquire);
  return begin == Clock::time_point{} ? Clock::duration::zero() : now - std::max(begin, last_end_);
}

}  // namespace onebit
