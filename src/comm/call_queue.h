// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What a rank has yet to tell of its calls: between the threads that make them, which must not
// wait, and the control thread, which sends.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/control_message.h"

namespace onebit {

// Thread-safe. Its lock is held for as long as it takes to copy.
class CallQueue {
 public:
  // Beyond that the newest records are dropped, and how many is told in their place.
  static constexpr size_t kMostQueued = 4096;

  // True if nothing was in it: the control thread may not know that now something is. Does not
  // throw: without memory a record is dropped. Memory is kept for the next ones.
  bool Push(std::span<const CallRecord> records) noexcept;
  // The next message; nothing if there is none.
  std::optional<Calls> Take();
  bool is_empty() const;
  // Drops everything, from now on at once.
  void Close();

 private:
  struct Entry {
    uint64_t untold = 0;  // calls before this one whose records were dropped
    CallRecord record;
  };

  Entry& At(size_t index) { return entries_[(first_ + index) % entries_.size()]; }
  void Grow();

  mutable std::mutex mutex_;    // guards all that follows
  std::vector<Entry> entries_;  // a ring, of which `count_` are queued
  size_t first_ = 0;
  size_t count_ = 0;
  uint64_t untold_ = 0;  // calls after the last entry
  bool is_closed_ = false;
};

}  // namespace onebit
