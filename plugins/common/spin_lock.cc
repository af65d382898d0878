// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SpinLock on one atomic word.
#include "plugins/common/spin_lock.h"

#include <thread>

namespace onebit::plugin {

// acquire on taking, release on giving: a holder sees the writes of the previous one.
bool SpinLock::TryLock() {
  uint32_t seen = state_.load(std::memory_order_relaxed);
  while ((seen & kTaken) == 0) {
    if (state_.compare_exchange_weak(seen, seen | kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void SpinLock::Lock() {
  while (!TryLock()) std::this_thread::yield();
}

bool SpinLock::Unlock() {
  uint32_t expected = kTaken;
  // acquire on failure: the writes of the aborting thread are visible.
  return state_.compare_exchange_strong(expected, 0, std::memory_order_release,
                                        std::memory_order_acquire);
}

void SpinLock::UnlockAborted() { state_.store(kAborted, std::memory_order_release); }

bool SpinLock::MarkAborted() {
  return (state_.fetch_or(kAborted, std::memory_order_acq_rel) & kAborted) == 0;
}

}  // namespace onebit::plugin
