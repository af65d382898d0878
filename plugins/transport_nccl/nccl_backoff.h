// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Backoff: paces polls of NCCL or a device, which do not notify.
#pragma once

#include <cstdint>

namespace onebit::nccl {

// One thread. Polls are close at first, for a call that NCCL is about to finish, then up to half a
// millisecond apart.
class Backoff {
 public:
  explicit Backoff(uint64_t timeout_ms);
  // Waits a little. False after the time-out.
  bool Wait();

 private:
  const uint64_t start_ns_;
  const uint64_t timeout_ns_;
  uint64_t pause_us_ = 10;
};

}  // namespace onebit::nccl
