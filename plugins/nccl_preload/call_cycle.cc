// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Looks for repetitions at the end of the history.
#include "plugins/nccl_preload/call_cycle.h"

#include <algorithm>

namespace onebit::preload {

std::optional<uint32_t> CallCycle::Next(const CallFacts& call) {
  Remember(call);
  if (!cycle_.empty()) {
    if (call == cycle_[position_]) {
      const auto number = static_cast<uint32_t>(position_);
      position_ = (position_ + 1) % cycle_.size();
      return number;
    }
    cycle_.clear();
    ++generation_;
    since_break_ = 1;
    required_repeats_ = std::min(2 * required_repeats_, kMostRepeats);
    return std::nullopt;
  }
  const size_t period = FindPeriod();
  if (period == 0) return std::nullopt;
  cycle_.assign(history_.end() - static_cast<ptrdiff_t>(period), history_.end());
  position_ = 0;  // of the call after this one, which was the cycle's last
  return static_cast<uint32_t>(period - 1);
}

void CallCycle::Remember(const CallFacts& call) {
  if (history_.size() == 2 * kMostHistory) {
    history_.erase(history_.begin(), history_.begin() + kMostHistory);
  }
  history_.push_back(call);
  ++since_break_;
}

// True if the last two runs of `period` calls are equal.
bool CallCycle::Repeats(size_t period) const {
  const auto end = history_.end();
  const auto length = static_cast<ptrdiff_t>(period);
  // The last call differs for most periods.
  return *(end - 1) == *(end - 1 - length) && std::equal(end - length, end, end - 2 * length);
}

size_t CallCycle::FindPeriod() const {
  const size_t longest = std::min(history_.size(), kMostHistory) / 2;
  // Shorter ones would not reach back over the break.
  const size_t shortest = since_break_ >= required_repeats_ ? 1 : since_break_ / 2 + 1;
  for (size_t period = shortest; period <= longest; ++period) {
    if (Repeats(period)) return period;
  }
  return 0;
}

}  // namespace onebit::preload
