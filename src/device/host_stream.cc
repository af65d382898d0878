// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/host_stream.h"

#include <exception>
#include <system_error>

#include "base/without_signals.h"

namespace onebit {
namespace {

thread_local HostStream* current_stream = nullptr;

}  // namespace

Result<std::unique_ptr<HostStream>> HostStream::Create() {
  std::unique_ptr<HostStream> stream(new HostStream);
  try {
    const WithoutSignals blocked;
    stream->thread_ = std::thread([raw = stream.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return Error(Code::kSystemError, "cannot start the thread of a stream: {}", error.what());
  }
  return stream;
}

HostStream::~HostStream() {
  if (!thread_.joinable()) return;
  WaitUntilIdle();
  // An empty task wakes the thread, which then sees is_ending_.
  is_ending_.store(true, std::memory_order_release);
  Publish();
  thread_.join();
}

HostStream* HostStream::Current() { return current_stream; }

Status HostStream::WaitForRoom() {
  const uint64_t given = given_.load(std::memory_order_relaxed);
  if (given - done_.load(std::memory_order_acquire) < kMostTasks) return OkStatus();
  if (Current() == this) {
    return Error(Code::kInvalidUsage,
                 "{} calls are queued on this stream, the most it holds, and its own thread cannot "
                 "wait for them",
                 kMostTasks);
  }
  WaitUntilDone(given - kMostTasks + 1);
  return OkStatus();
}

void HostStream::Publish() {
  given_.fetch_add(1, std::memory_order_release);
  given_.notify_one();
}

void HostStream::WaitUntilDone(uint64_t count) {
  uint64_t done = done_.load(std::memory_order_acquire);
  while (done < count) {
    done_.wait(done, std::memory_order_acquire);
    done = done_.load(std::memory_order_acquire);
  }
}

Status HostStream::Synchronize() {
  if (Current() == this) {
    return Error(Code::kInvalidUsage, "a stream cannot wait for itself: called on its own thread");
  }
  WaitUntilIdle();
  return std::exchange(failure_, OkStatus());
}

// A task may queue others, but only while it runs.
void HostStream::WaitUntilIdle() {
  while (!is_idle()) WaitUntilDone(given_.load(std::memory_order_acquire));
}

void HostStream::Run() {
  current_stream = this;
  for (uint64_t next = 0;; ++next) {
    given_.wait(next, std::memory_order_acquire);
    if (is_ending_.load(std::memory_order_acquire) &&
        given_.load(std::memory_order_acquire) == next + 1) {
      return;
    }
    RunTask(tasks_[next % kMostTasks]);
    done_.store(next + 1, std::memory_order_release);
    done_.notify_all();
  }
}

void HostStream::RunTask(Task& task) noexcept {
  const bool is_skipped = !failure_.ok() && task.rule == AfterFailure::kSkip;
  Status status;
  try {
    status = task.run(task.body, is_skipped);
  } catch (const std::bad_alloc&) {
    status = {Code::kOutOfMemory, "out of memory"};
  } catch (const std::exception& error) {
    status = {Code::kInternalError, error.what()};
  }
  if (failure_.ok()) failure_ = std::move(status);
}

}  // namespace onebit
