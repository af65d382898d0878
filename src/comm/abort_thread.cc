// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/abort_thread.h"

#include <unistd.h>

#include <exception>

#include "base/without_signals.h"

namespace onebit {

AbortThread::~AbortThread() {
  if (thread_ == nullptr) return;
  if (owner_pid_ != getpid()) {
    static_cast<void>(thread_.release());  // a forked child has no such thread
    return;
  }
  thread_->join();
}

void AbortThread::Abort(Endpoint& endpoint) noexcept {
  if (has_begun_.exchange(true, std::memory_order_relaxed)) return;
  owner_pid_ = getpid();
  try {
    const WithoutSignals blocked;
    thread_ = std::make_unique<std::thread>([&endpoint] { endpoint.Abort(); });
  } catch (const std::exception&) {
    endpoint.Abort();
  }
}

}  // namespace onebit
