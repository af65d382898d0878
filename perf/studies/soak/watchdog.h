// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Ends the process if its ranks hang beyond the reach of the library's own deadlines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace onebit::soak {

class Watchdog {
 public:
  // After `timeout` without a call of Note, prints the last note and ends the process with status
  // 1.
  Watchdog(std::string tool, std::chrono::milliseconds timeout);

  // Reports progress of any rank. Thread-safe.
  void Note(std::string what);

 private:
  void Watch(const std::stop_token& stop);

  const std::string tool_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::chrono::steady_clock::time_point deadline_;
  std::string last_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace onebit::soak
