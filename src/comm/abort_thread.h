// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Aborts an endpoint for a thread that must not wait.
#pragma once

#include <sys/types.h>

#include <memory>
#include <thread>

#include "transport/transport.h"

namespace onebit {

// An abort of NCCL may take seconds, and the thread that hears of a failure is the one that tells
// the process's signs of life, for all communicators.
class AbortThread {
 public:
  AbortThread() = default;
  // Waits until the abort is over.
  ~AbortThread();
  AbortThread(const AbortThread&) = delete;
  AbortThread& operator=(const AbortThread&) = delete;

  // On this thread where there can be no other. Calls after the first do nothing; one at a time.
  void Abort(Endpoint& endpoint) noexcept;

 private:
  std::unique_ptr<std::thread> thread_;
  pid_t owner_pid_ = 0;
};

}  // namespace onebit
