// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Aborts an endpoint for a thread that must not wait.
#pragma once

#include <atomic>
#include <thread>

#include "transport/transport.h"

namespace onebit {

// Aborting NCCL may take seconds, longer if another thread holds CUDA's driver. The control thread,
// which learns of failures, also sends the heartbeats of every communicator in the process, and
// onebitCommAbort is the way out for those whom the driver holds up: neither may wait.
class AbortThread {
 public:
  AbortThread() = default;
  // Waits until the abort is over.
  ~AbortThread();
  AbortThread(const AbortThread&) = delete;
  AbortThread& operator=(const AbortThread&) = delete;

  // Aborts on the calling thread if no other can be started. Calls after the first do nothing.
  // Thread-safe.
  void Abort(Endpoint& endpoint) noexcept;

 private:
  std::atomic<bool> has_begun_{false};
  std::thread thread_;
};

}  // namespace onebit
