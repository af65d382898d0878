// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A stream of host work: a thread that runs tasks in order.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/fork.h"
#include "base/status.h"

namespace onebit {

// One thread at a time may queue tasks. Queuing allocates nothing and takes no lock, but waits
// while kMostTasks are queued.
class HostStream {
 public:
  static constexpr size_t kMostTasks = 1024;
  static constexpr size_t kTaskBytes = 240;

  static Result<std::unique_ptr<HostStream>> Create();
  // Waits until all tasks are done.
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  // The stream that runs the calling thread; null in other threads.
  static HostStream* Current();

  // The reaction of a task to the failure of an earlier one.
  enum class AfterFailure {
    kRun,   // runs, because peers wait for it
    kSkip,  // does not run, because its input is missing
  };

  // Queues `body`, which returns a Status and is destroyed when it has run or was skipped. On the
  // stream's own thread it fails if the queue is full, because no other thread could empty it.
  template <typename Body>
  Status Enqueue(AfterFailure rule, Body body) {
    static_assert(sizeof(Body) <= kTaskBytes && alignof(Body) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Body>);
    ONEBIT_TRY(WaitForRoom());
    Task& task = tasks_[given_.load(std::memory_order_relaxed) % kMostTasks];
    new (task.body) Body(std::move(body));
    task.rule = rule;
    task.run = [](std::byte* stored, bool is_skipped) -> Status {
      Body& queued = *std::launder(reinterpret_cast<Body*>(stored));
      const std::unique_ptr<Body, Destroy<Body>> owned(&queued);
      return is_skipped ? OkStatus() : queued();
    };
    Publish();
    return OkStatus();
  }

  // Waits until all tasks are done and returns the first error since the previous call.
  Status Synchronize();
  // True if all tasks are done. Leaves the error for Synchronize.
  bool is_idle() const {
    return done_.load(std::memory_order_acquire) == given_.load(std::memory_order_acquire);
  }
  // Requires an idle stream.
  const Status& failure() const { return failure_; }

  const Origin origin;

 private:
  template <typename Body>
  struct Destroy {
    void operator()(Body* body) const { std::destroy_at(body); }
  };
  struct Task {
    Status (*run)(std::byte* body, bool is_skipped);
    AfterFailure rule;
    alignas(std::max_align_t) std::byte body[kTaskBytes];
  };

  HostStream() = default;
  Status WaitForRoom();
  void Publish();
  void WaitUntilDone(uint64_t count);
  void WaitUntilIdle();
  void Run();
  void RunTask(Task& task) noexcept;

  std::array<Task, kMostTasks> tasks_;
  // Tasks so far: given to it, taken out of the queue when they were done.
  std::atomic<uint64_t> given_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> is_ending_{false};
  Status failure_;  // the thread's until all is done, then the giver's
  std::thread thread_;
};

}  // namespace onebit
