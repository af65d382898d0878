// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The new thread, and how it agrees with its creator on who cleans up.
#include "plugins/common/run_detached.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "wait/backoff.h"

namespace onebit::plugin {
namespace {

// The first to change it from kRunning decides who undoes the work.
enum class Agreement { kRunning, kDone, kAbandoned };

}  // namespace

bool RunDetached(std::function<void()> work, std::function<void()> undo, uint64_t timeout_ms,
                 const std::function<bool()>& should_stop) {
  auto agreement = std::make_shared<std::atomic<Agreement>>(Agreement::kRunning);
  std::thread thread([agreement, work = std::move(work), undo = std::move(undo)] {
    work();
    Agreement expected = Agreement::kRunning;
    // release: the creator sees what the work has written. acquire: see below.
    if (!agreement->compare_exchange_strong(expected, Agreement::kDone,
                                            std::memory_order_acq_rel)) {
      undo();
    }
  });
  PollUntil(
      DeadlineAfter(timeout_ms),
      [&] { return agreement->load(std::memory_order_acquire) != Agreement::kRunning; },
      [&] { return should_stop(); });
  Agreement expected = Agreement::kRunning;
  if (agreement->compare_exchange_strong(expected, Agreement::kAbandoned,
                                         std::memory_order_acq_rel)) {
    thread.detach();
    return false;
  }
  thread.join();
  return true;
}

}  // namespace onebit::plugin
