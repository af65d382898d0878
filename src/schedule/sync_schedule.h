// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// At which steps ranks that step on their own average what they have added up. Pure: every rank
// decides alike without a message.
#pragma once

#include <cstdint>
#include <optional>

namespace onebit {

// min(interval * 2^doublings, limit), which cannot overflow.
uint64_t Doubled(uint64_t interval, uint64_t doublings, uint64_t limit);

// The local-step rule of 0/1 Adam (Lu et al. 2023, section 4): every step of the warm-up, then at
// intervals that double every so many steps up to a limit, counted from the last sync.
struct SyncSchedule {
  uint64_t warmup_steps = 0;
  uint64_t base_interval = 1;  // >= 1
  uint64_t double_every = 0;   // steps; 0: never
  uint64_t max_interval = 16;  // >= base_interval

  // Steps count from 0.
  uint64_t IntervalAt(uint64_t step) const;
  // last_sync: the step of the last sync; none: there was none yet, and step 0 is the first of the
  // first interval.
  bool IsSync(uint64_t step, std::optional<uint64_t> last_sync) const;

  friend bool operator==(const SyncSchedule&, const SyncSchedule&) = default;
};

}  // namespace onebit
