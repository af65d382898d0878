// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Signals are the application's business, and its threads'. Threads of the library inherit a mask
// that blocks all of them.
#pragma once

#include <csignal>

namespace onebit {

// Blocks all signals of the calling thread while it lives.
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
