// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The one small thread of a process that watches all control connections. It sleeps until a socket
// or a timer needs it, and ends when nothing is left to watch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "comm/socket.h"

namespace onebit {

// What the thread serves. All functions are called by it with ControlLoop::mutex held.
class LoopItem {
 public:
  virtual void OnEvent(int fd, uint32_t events) = 0;
  // Does what is due; returns when to be called next. Called after events, too.
  virtual std::chrono::steady_clock::time_point OnTimer(
      std::chrono::steady_clock::time_point now) = 0;
  // The process was stopped for a while: time passed without a chance to listen.
  virtual void OnStall(std::chrono::steady_clock::time_point now) = 0;
  // One of the above found no memory. The item ends what it serves, for which it needs none: others
  // see the end of its connections.
  virtual void OnOutOfMemory() = 0;
  // Whether the item is done. Then the thread forgets it and calls Retire, with which it may end.
  virtual bool is_over() const = 0;
  virtual void Retire() = 0;

 protected:
  ~LoopItem() = default;
};

// One per process, never destroyed. What it guards by its mutex is all of its items.
class ControlLoop {
 public:
  static ControlLoop& Get();

  std::mutex& mutex() { return mutex_; }
  // With `mutex` held, from here on. Add starts the thread if it does not run.
  Status Add(LoopItem* item);
  void Remove(LoopItem* item);  // and what it watches
  Status Watch(LoopItem* item, int fd, uint32_t events);
  void Change(int fd, uint32_t events);
  void Unwatch(int fd);
  // The timers of an item have changed. The only one that needs no lock, once an item was added.
  void Wake();

 private:
  struct Watched {
    LoopItem* item = nullptr;
    uint32_t generation = 0;  // tells an event of a former descriptor of this number
  };

  ControlLoop() = default;
  Status Start();
  void Run();
  std::chrono::steady_clock::time_point RunTimers();
  void Dispatch(uint64_t token, uint32_t events);
  void RetireItems();

  std::mutex mutex_;  // guards everything; the thread holds it except while it sleeps
  Descriptor epoll_;
  Descriptor wake_;
  bool is_running_ = false;
  std::vector<LoopItem*> items_;
  std::unordered_map<int, Watched> watched_;
  uint32_t next_generation_ = 1;
};

}  // namespace onebit
