// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SpinLock: gives either the owner or an abort exclusive use of an endpoint.
#pragma once

#include <atomic>
#include <cstdint>

namespace onebit::plugin {

// An abort has to tell the peers, and a frame transport allows only one thread at a time. So every
// thread that works on the endpoint holds the lock. An abort marks the endpoint; if the lock is
// free it takes it and tells the peers, otherwise the holder finds the mark when it releases the
// lock, and tells them. Marking and taking change the same word, so exactly one of the two sees the
// other.
class SpinLock {
 public:
  // Called by the owner. Waits for an abort that is telling the peers, which takes a bounded time.
  void Lock();
  // Called by the holder. False if the endpoint was aborted: the caller still holds the lock, tells
  // the peers if nobody did, and releases the lock by UnlockAborted.
  bool Unlock();
  void UnlockAborted();

  // Thread-safe. True for the first mark.
  bool MarkAborted();
  // Takes the lock if it is free. Does not wait.
  bool TryLock();

  // acquire: earlier writes of the aborting thread are visible.
  bool is_aborted() const { return (state_.load(std::memory_order_acquire) & kAborted) != 0; }

 private:
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kAborted = 2;
  std::atomic<uint32_t> state_{0};
};

}  // namespace onebit::plugin
