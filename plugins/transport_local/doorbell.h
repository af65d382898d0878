// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Doorbell: wakes the one thread that waits for news at an endpoint.
#pragma once

#include <atomic>
#include <cstdint>

namespace onebit::local {

// An event count on a futex. Any thread rings after publishing news; the owner sleeps until the
// count differs from one it has read *before* it last looked for news. So news that arrives between
// the look and the sleep changes the count, and the sleep ends at once: no wake-up is lost.
//
// The count wraps. A sleeper would miss news only if exactly 2^32 rings fell between its look and
// its sleep, and then only until its time-out.
class alignas(64) Doorbell {
 public:
  // The count. The reader sees everything published before the rings it includes. acquire: pairs
  // with the release half of Ring().
  uint32_t count() const { return count_.load(std::memory_order_acquire); }

  // Thread-safe. Costs a system call only when the owner sleeps.
  void Ring();

  // Owner only. Returns when the count differs from `seen`, or after the time-out: polls for
  // `spin_ns`, then sleeps. `now_ns` is a monotonic clock.
  void Wait(uint32_t seen, uint64_t timeout_ns, uint64_t spin_ns, uint64_t (*now_ns)());

 private:
  void Sleep(uint32_t seen, uint64_t timeout_ns);

  std::atomic<uint32_t> count_{0};        // the futex word
  std::atomic<uint32_t> is_sleeping_{0};  // the owner sleeps or is about to
};

}  // namespace onebit::local
