// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/control_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/without_signals.h"

namespace onebit {
namespace {

using Clock = std::chrono::steady_clock;

// A sleep that lasts this much longer than requested means that the process was stopped.
constexpr std::chrono::milliseconds kStall{500};

int TimeoutUntil(Clock::time_point time) {
  if (time == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

uint64_t TokenOf(int fd, uint32_t generation) {
  return static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

ControlLoop& ControlLoop::Get() {
  // Never destroyed, because its thread may run while the process exits. A forked child has a copy
  // without a thread and gets a new one. No lock, which another thread of the parent might have
  // held.
  static std::atomic<ControlLoop*> current{nullptr};
  ControlLoop* loop = current.load(std::memory_order_acquire);
  while (loop == nullptr || !loop->origin_.is_here()) {
    std::unique_ptr<ControlLoop> made(new ControlLoop);
    if (current.compare_exchange_weak(loop, made.get(), std::memory_order_acq_rel)) {
      loop = made.release();
    }
  }
  return *loop;
}

Status ControlLoop::Add(LoopItem* item) {
  if (!is_running_) ONEBIT_TRY(Start());
  items_.push_back(item);
  Wake();
  return OkStatus();
}

Status ControlLoop::Start() {
  if (!epoll_.is_open()) {
    Descriptor epoll = Descriptor::From([] { return epoll_create1(EPOLL_CLOEXEC); });
    Descriptor wake = Descriptor::From([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = TokenOf(wake.get(), 0)}};
    if (!epoll.is_open() || !wake.is_open() ||
        epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
      return Error(Code::kSystemError, "no file descriptors for the control thread: {}",
                   std::strerror(errno));
    }
    // Set both or neither, so that a later start does not find one without the other.
    epoll_ = std::move(epoll);
    wake_ = std::move(wake);
  }
  try {
    const WithoutSignals guard;
    std::thread([this] { Run(); }).detach();
  } catch (const std::system_error& error) {
    return Error(Code::kSystemError, "the control thread cannot be started: {}", error.what());
  }
  is_running_ = true;
  return OkStatus();
}

void ControlLoop::Remove(LoopItem* item) {
  std::erase(items_, item);
  for (auto entry = watched_.begin(); entry != watched_.end();) {
    if (entry->second.item == item) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->first, nullptr);
      entry = watched_.erase(entry);
    } else {
      ++entry;
    }
  }
  Wake();
}

Status ControlLoop::Watch(LoopItem* item, int fd, uint32_t events) {
  const uint32_t generation = next_generation_++;
  epoll_event event = {.events = events, .data = {.u64 = TokenOf(fd, generation)}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Error(Code::kSystemError, "a control connection cannot be watched: {}",
                 std::strerror(errno));
  }
  watched_[fd] = {item, generation};
  return OkStatus();
}

void ControlLoop::Change(int fd, uint32_t events) {
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_event event = {.events = events, .data = {.u64 = TokenOf(fd, found->second.generation)}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void ControlLoop::Unwatch(int fd) {
  if (watched_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void ControlLoop::Wake() {
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
}

void ControlLoop::Run() {
  pthread_setname_np(pthread_self(), "onebit-control");
  std::unique_lock lock(mutex_);
  while (true) {
    RetireItems();
    if (items_.empty()) break;
    const Clock::time_point next = RunTimers();
    const int timeout_ms = TimeoutUntil(next);
    lock.unlock();
    epoll_event events[64];
    const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
    lock.lock();

    const Clock::time_point woken = Clock::now();
    if (next != Clock::time_point::max() && woken > next + kStall) {
      for (LoopItem* item : items_) item->OnStall(woken);
    }
    for (int i = 0; i < count; ++i) Dispatch(events[i].data.u64, events[i].events);
  }
  is_running_ = false;
}

// Returns when the next timer is due.
Clock::time_point ControlLoop::RunTimers() {
  Clock::time_point next = Clock::time_point::max();
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < items_.size(); ++i) {
    LoopItem* item = items_[i];
    try {
      next = std::min(next, item->OnTimer(now));
    } catch (const std::bad_alloc&) {
      item->OnOutOfMemory();
      next = now;
    }
  }
  return next;
}

void ControlLoop::Dispatch(uint64_t token, uint32_t events) {
  const int fd = static_cast<int>(token & 0xffff'ffff);
  if (fd == wake_.get()) {
    uint64_t count;
    static_cast<void>(!read(fd, &count, sizeof(count)));
    return;
  }
  const auto found = watched_.find(fd);
  if (found == watched_.end() || found->second.generation != token >> 32) return;
  LoopItem* item = found->second.item;
  try {
    item->OnEvent(fd, events);
  } catch (const std::bad_alloc&) {
    item->OnOutOfMemory();
  }
}

void ControlLoop::RetireItems() {
  for (size_t i = 0; i < items_.size();) {
    LoopItem* item = items_[i];
    if (!item->is_over()) {
      ++i;
      continue;
    }
    Remove(item);
    item->Retire();
  }
}

}  // namespace onebit
