// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_queue.h"

#include <algorithm>
#include <new>
#include <utility>

namespace onebit {

bool CallQueue::Push(std::span<const CallRecord> records) noexcept {
  std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  const bool was_empty = count_ == 0;
  for (const CallRecord& record : records) {
    if (count_ == kMostQueued) {
      ++untold_;
      continue;
    }
    try {
      if (count_ == entries_.size()) Grow();
      Entry& entry = At(count_);
      entry.record.text.assign(ShortText(record));
      entry.record.sequence = record.sequence;
      entry.record.digest = record.digest;
      entry.untold = std::exchange(untold_, 0);
      ++count_;
    } catch (const std::bad_alloc&) {
      ++untold_;
    }
  }
  return was_empty && count_ != 0;
}

void CallQueue::Grow() {
  std::vector<Entry> grown(std::clamp<size_t>(2 * entries_.size(), 64, kMostQueued));
  for (size_t i = 0; i < count_; ++i) grown[i] = std::move(At(i));
  entries_ = std::move(grown);
  first_ = 0;
}

std::optional<Calls> CallQueue::Take() {
  std::lock_guard lock(mutex_);
  if (count_ == 0) return std::nullopt;
  Calls calls = {.untold = At(0).untold, .records = {}};
  size_t bytes = 0;
  while (count_ != 0) {
    const Entry& next = At(0);
    bytes += EncodedBytes(next.record);
    const bool is_first = calls.records.empty();
    if (!is_first && (bytes > kMaxContentBytes || next.untold != 0 ||
                      next.record.sequence != calls.records.back().sequence + 1)) {
      break;
    }
    calls.records.push_back(next.record);
    first_ = (first_ + 1) % entries_.size();
    --count_;
  }
  return calls;
}

bool CallQueue::is_empty() const {
  std::lock_guard lock(mutex_);
  return count_ == 0;
}

void CallQueue::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  entries_ = {};
  first_ = count_ = 0;
}

}  // namespace onebit
