// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Decides at which steps ranks that step on their own average what they have accumulated. A pure
// function of step numbers, so every rank decides alike without a message.
#pragma once

#include <cstdint>
#include <optional>

namespace onebit {

// min(interval * 2^doublings, limit), without overflow.
uint64_t Doubled(uint64_t interval, uint64_t doublings, uint64_t limit);

// The local-step rule of 0/1 Adam (Lu et al. 2023, section 4): a sync at every step of the warm-up,
// then at intervals since the last sync, which double every `double_every` steps up to a limit.
struct SyncSchedule {
  uint64_t warmup_steps = 0;
  uint64_t base_interval = 1;  // >= 1
  uint64_t double_every = 0;   // steps; 0: never
  uint64_t max_interval = 16;  // >= base_interval

  // Interval in force at a step. Steps count from 0.
  uint64_t IntervalAt(uint64_t step) const;
  // True if a sync is due at `step`. last_sync is the step of the last sync; nullopt if there was
  // none yet: step 0 is then the first of the first interval.
  bool IsSync(uint64_t step, std::optional<uint64_t> last_sync) const;

  friend bool operator==(const SyncSchedule&, const SyncSchedule&) = default;
};

}  // namespace onebit
