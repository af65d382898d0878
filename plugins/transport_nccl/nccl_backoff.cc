// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Yields at first, then sleeps for growing times.
#include "plugins/transport_nccl/nccl_backoff.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace onebit::nccl {
namespace {

constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kLongestPauseUs = 500;
constexpr uint64_t kMostMs = 86'400'000;  // a day: keeps nanoseconds from overflowing

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

Backoff::Backoff(uint64_t timeout_ms)
    : start_ns_(NowNs()), timeout_ns_(std::min(timeout_ms, kMostMs) * 1'000'000) {}

bool Backoff::Wait() {
  const uint64_t passed = NowNs() - start_ns_;
  if (passed >= timeout_ns_) return false;
  if (passed < kSpinNs) {
    std::this_thread::yield();
    return true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(pause_us_));
  pause_us_ = std::min(2 * pause_us_, kLongestPauseUs);
  return true;
}

}  // namespace onebit::nccl
