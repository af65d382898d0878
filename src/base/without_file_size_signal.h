// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Writing beyond the limit of file sizes (ulimit -f) sends SIGXFSZ to the thread that writes, which
// ends the process. A library must return an error instead.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace onebit {

// For its lifetime such a write of the calling thread fails with EFBIG, and has no other effect.
// Keeps errno.
class WithoutFileSizeSignal {
 public:
  WithoutFileSizeSignal() {
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &former_);
  }
  ~WithoutFileSizeSignal() {
    const int error = errno;
    const timespec at_once{};
    // The signal of a write, not one that somebody has sent before.
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
    errno = error;
  }
  WithoutFileSizeSignal(const WithoutFileSizeSignal&) = delete;
  WithoutFileSizeSignal& operator=(const WithoutFileSizeSignal&) = delete;

 private:
  sigset_t signal_;
  sigset_t former_;
  bool was_pending_;
};

}  // namespace onebit
