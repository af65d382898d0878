// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Watches the counters of a communicator, which any thread may read.
#include "perf/train_text/victim.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "perf/common/comm_stats.h"

namespace onebit::train {

void Die() {
  kill(getpid(), SIGKILL);
  std::abort();  // it does not come to this
}

std::jthread DieInNextCollective(onebitComm_t comm) {
  const uint64_t messages = perf::SentBy(comm).messages;
  return std::jthread([comm, messages](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (perf::SentBy(comm).messages > messages) Die();
      std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
  });
}

}  // namespace onebit::train
