// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A list with a lock.
#include "perf/studies/soak/live_comms.h"

#include "perf/common/tool_error.h"

namespace onebit::soak {

LiveComms::~LiveComms() {
  for (onebitComm_t comm : comms_) onebitCommDestroy(comm);
}

void LiveComms::Add(onebitComm_t comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(comm);
  if (is_aborted_) onebitCommAbort(comm);
}

void LiveComms::Destroy(onebitComm_t comm) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(comms_, comm);
  }
  perf::Check(onebitCommDestroy(comm), "onebitCommDestroy");
}

void LiveComms::AbortAll() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  for (onebitComm_t comm : comms_) onebitCommAbort(comm);
}

}  // namespace onebit::soak
