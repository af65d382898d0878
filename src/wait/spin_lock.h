// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SpinLock: gives either the owner or an abort exclusive use of an endpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace onebit {

// An abort has to tell the peers, and a transport allows only one thread at a time. So every thread
// that works on the endpoint holds the lock. An abort marks the endpoint; if the lock is free it
// takes it and tells the peers, otherwise the holder finds the mark when it releases the lock, and
// tells them. Marking and taking change the same word, so exactly one of the two sees the other.
class SpinLock {
 public:
  // Called by the owner. Waits for an abort that is telling the peers, which takes a bounded time.
  void Lock() {
    while (!TryLock()) std::this_thread::yield();
  }
  // Called by the holder. False if the endpoint was aborted: the caller still holds the lock, tells
  // the peers if nobody did, and releases the lock by UnlockAborted.
  bool Unlock() {
    uint32_t expected = kTaken;
    // acquire on failure: the writes of the aborting thread are visible.
    return state_.compare_exchange_strong(expected, 0, std::memory_order_release,
                                          std::memory_order_acquire);
  }
  void UnlockAborted() { state_.store(kAborted, std::memory_order_release); }

  // Thread-safe. True for the first mark.
  bool MarkAborted() {
    return (state_.fetch_or(kAborted, std::memory_order_acq_rel) & kAborted) == 0;
  }
  // Takes the lock if it is free. Does not wait.
  bool TryLock() {
    // acquire on taking, release on giving: a holder sees the writes of the previous one.
    uint32_t seen = state_.load(std::memory_order_relaxed);
    while ((seen & kTaken) == 0) {
      if (state_.compare_exchange_weak(seen, seen | kTaken, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  // acquire: earlier writes of the aborting thread are visible.
  bool is_aborted() const { return (state_.load(std::memory_order_acquire) & kAborted) != 0; }

 private:
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kAborted = 2;
  std::atomic<uint32_t> state_{0};
};

}  // namespace onebit
