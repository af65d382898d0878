// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The application handles signals, on threads of its own. Threads of the library start while all
// signals are blocked, and inherit that mask.
#pragma once

#include <csignal>

namespace onebit {

// Blocks all signals of the calling thread for its lifetime.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t former_;
};

}  // namespace onebit
