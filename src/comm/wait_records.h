// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Finds ranks that wait for each other in calls of different kinds: one in a collective of the
// control channel, the other in one that moves data.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/control.h"

namespace onebit {

// Used by one thread at a time. All ranks make the same calls in the same order. So if a rank is in
// a gather after `calls` calls that move data, no other rank makes call number `calls`, or a later
// one, before this gather. That holds whether or not a rank still waits, so no record is out of
// date, but for that of a shrink, which is no gather and is withdrawn when it has ended.
class WaitRecords {
 public:
  explicit WaitRecords(size_t ranks) : waits_(ranks) {}

  // Takes the call in which a rank waits, or that it waits in none. Returns the group's failure if
  // it contradicts that of another rank.
  std::optional<Failure> Add(uint32_t rank, Waits waits);

 private:
  std::vector<std::optional<Waits>> waits_;  // the last of each rank
};

}  // namespace onebit
