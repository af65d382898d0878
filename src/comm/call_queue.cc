// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_queue.h"

#include <new>
#include <utility>

namespace onebit {

bool CallQueue::Push(std::span<const CallRecord> records) noexcept {
  std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  const bool was_empty = entries_.empty();
  for (const CallRecord& record : records) {
    if (entries_.size() >= kMostQueued) {
      ++untold_;
      continue;
    }
    try {
      entries_.push_back({.untold = untold_,
                          .record = {.sequence = record.sequence,
                                     .digest = record.digest,
                                     .text = std::string(ShortText(record))}});
      untold_ = 0;
    } catch (const std::bad_alloc&) {
      ++untold_;
    }
  }
  return was_empty && !entries_.empty();
}

std::optional<Calls> CallQueue::Take() {
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return std::nullopt;
  Calls calls = {.untold = entries_.front().untold, .records = {}};
  size_t bytes = 0;
  while (!entries_.empty()) {
    Entry& next = entries_.front();
    bytes += EncodedBytes(next.record);
    const bool is_first = calls.records.empty();
    if (!is_first && (bytes > kMaxContentBytes || next.untold != 0 ||
                      next.record.sequence != calls.records.back().sequence + 1)) {
      break;
    }
    calls.records.push_back(std::move(next.record));
    entries_.pop_front();
  }
  return calls;
}

bool CallQueue::is_empty() const {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

void CallQueue::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  entries_.clear();
}

}  // namespace onebit
