// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The control thread, one per process, which watches all control connections. It sleeps until a
// socket or a timer needs it and ends when nothing is left to watch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fork.h"
#include "base/status.h"
#include "comm/socket.h"

namespace onebit {

// Served by the thread, which calls every function with ControlLoop::mutex held.
class LoopItem {
 public:
  virtual void OnEvent(int fd, uint32_t events) = 0;
  // Does what is due and returns when to be called next. Also called after events.
  virtual std::chrono::steady_clock::time_point OnTimer(
      std::chrono::steady_clock::time_point now) = 0;
  // The process was stopped for a while, so silence during that time means nothing.
  virtual void OnStall(std::chrono::steady_clock::time_point now) = 0;
  // One of the above ran out of memory. The item closes its connections, which needs no memory and
  // which the other ends notice.
  virtual void OnOutOfMemory() = 0;
  // True when the item is done. The thread then forgets it and calls Retire, which may delete it.
  virtual bool is_over() const = 0;
  virtual void Retire() = 0;

 protected:
  ~LoopItem() = default;
};

// One per process, never destroyed. Its mutex guards all of its items.
class ControlLoop {
 public:
  static ControlLoop& Get();

  std::mutex& mutex() { return mutex_; }
  // These need `mutex`. Add starts the thread if it is not running.
  Status Add(LoopItem* item);
  void Remove(LoopItem* item);  // and its descriptors
  Status Watch(LoopItem* item, int fd, uint32_t events);
  void Change(int fd, uint32_t events);
  void Unwatch(int fd);
  // Makes the thread run the timers. Needs no lock once an item was added.
  void Wake();

 private:
  struct Watched {
    LoopItem* item = nullptr;
    uint32_t generation = 0;  // distinguishes events of an earlier descriptor of this number
  };

  ControlLoop() = default;
  Status Start();
  void Run();
  std::chrono::steady_clock::time_point RunTimers();
  void Dispatch(uint64_t token, uint32_t events);
  void RetireItems();

  const Origin origin_;
  std::mutex mutex_;  // guards everything; the thread holds it except while it sleeps
  Descriptor epoll_;
  Descriptor wake_;
  bool is_running_ = false;
  std::vector<LoopItem*> items_;
  std::unordered_map<int, Watched> watched_;
  uint32_t next_generation_ = 1;
};

}  // namespace onebit
