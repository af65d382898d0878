// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A signal that nobody can hold back.
#include "perf/train_text/victim.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

namespace onebit::train {

void Die() {
  kill(getpid(), SIGKILL);
  std::abort();  // not reached
}

std::jthread DieIn(double seconds) {
  return std::jthread([seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    Die();
  });
}

}  // namespace onebit::train
