// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/abort_thread.h"

#include <exception>

#include "base/without_signals.h"

namespace onebit {

AbortThread::~AbortThread() {
  if (thread_.joinable()) thread_.join();
}

void AbortThread::Abort(Endpoint& endpoint) noexcept {
  if (has_begun_.exchange(true, std::memory_order_relaxed)) return;
  try {
    const WithoutSignals blocked;
    thread_ = std::thread([&endpoint] { endpoint.Abort(); });
  } catch (const std::exception&) {
    endpoint.Abort();
  }
}

}  // namespace onebit
