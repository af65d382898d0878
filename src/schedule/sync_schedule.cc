// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/sync_schedule.h"

#include <algorithm>

namespace onebit {

uint64_t Doubled(uint64_t interval, uint64_t doublings, uint64_t limit) {
  for (uint64_t i = 0; i < doublings && interval < limit; ++i) {
    interval = interval > limit / 2 ? limit : 2 * interval;
  }
  return std::min(interval, limit);
}

uint64_t SyncSchedule::IntervalAt(uint64_t step) const {
  if (step < warmup_steps) return 1;
  const uint64_t doublings = double_every == 0 ? 0 : (step - warmup_steps) / double_every;
  return Doubled(base_interval, doublings, max_interval);
}

bool SyncSchedule::IsSync(uint64_t step, std::optional<uint64_t> last_sync) const {
  const uint64_t steps_since = last_sync ? step - *last_sync : step + 1;
  return steps_since >= IntervalAt(step);
}

}  // namespace onebit
