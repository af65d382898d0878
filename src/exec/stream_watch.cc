// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/stream_watch.h"

#include <chrono>
#include <system_error>

#include "base/without_signals.h"

namespace onebit {

Result<std::unique_ptr<StreamWatch>> StreamWatch::Start(std::function<void()> look) {
  std::unique_ptr<StreamWatch> watch(new StreamWatch(std::move(look)));
  try {
    const WithoutSignals blocked;
    watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return Error(Code::kSystemError, "cannot start the thread that watches streams: {}",
                 error.what());
  }
  return watch;
}

StreamWatch::~StreamWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void StreamWatch::Run() {
  constexpr std::chrono::milliseconds kInterval{100};
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    lock.unlock();
    look_();
    lock.lock();
    changed_.wait_for(lock, kInterval, [this] { return is_ending_; });
  }
}

}  // namespace onebit
