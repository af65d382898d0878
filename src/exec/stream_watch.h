// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A thread that watches stream-ordered calls, for which no caller waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace onebit {

class StreamWatch {
 public:
  // Calls `look`, which must not throw, about ten times a second.
  static Result<std::unique_ptr<StreamWatch>> Start(std::function<void()> look);
  // Returns when `look` is no longer running.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

 private:
  explicit StreamWatch(std::function<void()> look) : look_(std::move(look)) {}
  void Run();

  const std::function<void()> look_;
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace onebit
