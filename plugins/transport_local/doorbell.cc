// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Doorbell on Linux futexes.
#include "plugins/transport_local/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace onebit::local {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex word has 32 bits");

// Longest single sleep, which keeps timespec in range; Wait() sleeps again until its time-out.
constexpr uint64_t kLongestSleepNs = 3'600'000'000'000;
constexpr uint64_t kNsPerSecond = 1'000'000'000;

void RelaxCpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, const timespec* timeout) {
  // The result does not matter: woken, changed, interrupted or timed out, Wait() checks again.
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0);
}

void FutexWakeOne(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

// Ring and Sleep are the two sides of a store-load race: Ring stores the count and loads
// is_sleeping_, Sleep stores is_sleeping_ and loads the count. All four are seq_cst, so they have
// one total order and at least one side sees the other's store: either Ring wakes, or Sleep does
// not sleep. The kernel compares the count once more under its own lock, which closes the gap
// between Sleep's load and the moment the thread is queued.
void Doorbell::Ring() {
  // seq_cst as explained above; includes release, which publishes the news to readers of count().
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (is_sleeping_.load(std::memory_order_seq_cst) == 0) return;
  // The first of several ringers makes the system call. relaxed: it decides only who wakes the
  // owner.
  if (is_sleeping_.exchange(0, std::memory_order_relaxed) != 0) FutexWakeOne(&count_);
}

void Doorbell::Sleep(uint32_t seen, uint64_t timeout_ns) {
  is_sleeping_.store(1, std::memory_order_seq_cst);
  if (count_.load(std::memory_order_seq_cst) == seen) {
    timeout_ns = std::min(timeout_ns, kLongestSleepNs);
    const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kNsPerSecond),
                           .tv_nsec = static_cast<long>(timeout_ns % kNsPerSecond)};
    FutexWait(&count_, seen, &timeout);
  }
  // relaxed: a ringer that still sees 1 only makes a needless system call.
  is_sleeping_.store(0, std::memory_order_relaxed);
}

void Doorbell::Wait(uint32_t seen, uint64_t timeout_ns, uint64_t spin_ns, uint64_t (*now_ns)()) {
  if (count() != seen || timeout_ns == 0) return;
  const uint64_t start = now_ns();
  while (true) {
    const uint64_t elapsed = now_ns() - start;
    if (elapsed >= timeout_ns) return;
    if (elapsed < spin_ns) {
      for (int i = 0; i < 32 && count() == seen; ++i) RelaxCpu();
    } else {
      Sleep(seen, timeout_ns - elapsed);
    }
    if (count() != seen) return;
  }
}

}  // namespace onebit::local
