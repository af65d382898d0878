// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/compute_threads.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <system_error>

#include "base/without_signals.h"

namespace onebit {
namespace {

// A thread without work spins this long before it sleeps: longer than the usual time between two
// steps, too short for anybody to notice.
constexpr auto kSpin = std::chrono::microseconds(50);

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ComputeThreads::~ComputeThreads() {
  is_ending_.store(true);
  wakes_.fetch_add(1);
  wakes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status ComputeThreads::Start(uint32_t count, uint32_t ranks, const ProcessorSet& processors) {
  try {
    processors_ = processors;
    computes_.assign(count, StepCompute(ranks));
    threads_.reserve(count);
    const WithoutSignals blocked;
    for (StepCompute& compute : computes_) {
      const auto thread = static_cast<uint32_t>(threads_.size() + 1);
      threads_.emplace_back([this, &compute, thread] { Run(&compute, thread); });
    }
  } catch (const std::system_error& error) {
    return Error(
        Code::kSystemError,
        "only {} of {} compute threads could be started: {}; set ONEBIT_COMPUTE_THREADS to fewer",
        size(), count, error.what());
  }
  return OkStatus();
}

void ComputeThreads::Reserve(size_t steps) {
  // Has room for every step of a call. All are taken back before the next call, so an entry is not
  // reused while a delayed thread still reads it.
  const size_t length = std::bit_ceil(std::max<size_t>(steps, 1));
  if (length <= tasks_.size()) return;
  tasks_ = std::vector<Task>(length);
  results_ = std::vector<Result>(length);
  mask_ = length - 1;
}

void ComputeThreads::Submit(uint32_t step, bool is_nonfinite) {
  const uint64_t number = submitted_.load(kOwn);
  tasks_[number & mask_] = {step, is_nonfinite};
  // seq_cst, here and in Run: either the thread sees the task before it sleeps, or this sees that
  // the thread is about to sleep.
  submitted_.store(number + 1);
  if (asleep_.load() == 0) return;
  wakes_.fetch_add(1);
  wakes_.notify_one();
}

bool ComputeThreads::Take(Done* done) {
  Result& result = results_[taken_ & mask_];
  // acquire: makes everything visible that the step has written.
  if (taken_ == submitted_.load(kOwn) ||
      result.number.load(std::memory_order_acquire) != taken_ + 1) {
    return false;
  }
  *done = result.done;
  ++taken_;
  return true;
}

void ComputeThreads::Drop() {
  Done done;
  while (outstanding() != 0) {
    if (!Take(&done)) Pause();
  }
}

bool ComputeThreads::Claim(uint64_t* number) {
  *number = claimed_.load();
  while (*number < submitted_.load()) {
    if (claimed_.compare_exchange_weak(*number, *number + 1)) return true;
  }
  return false;
}

void ComputeThreads::Finish(const Done& done) {
  // Results are numbered as they finish, so that the caller takes the earliest ones first.
  const uint64_t number = finished_.fetch_add(1, kOwn);
  Result& result = results_[number & mask_];
  result.done = done;
  result.number.store(number + 1, std::memory_order_release);
}

void ComputeThreads::Run(StepCompute* compute, uint32_t thread) {
  // Runs close to the caller, whose memory is then close, too. A thread that may not do so is only
  // slower.
  if (!processors_.empty()) {
    sched_setaffinity(0, processors_.size() * sizeof(uint64_t),
                      reinterpret_cast<const cpu_set_t*>(processors_.data()));
  }
  auto idle_since = Clock::now();
  while (!is_ending_.load()) {
    uint64_t number = 0;
    if (Claim(&number)) {
      const Task task = tasks_[number & mask_];
      const Step& step = batch_->plan->steps[task.step];
      const auto begin = is_timed_ ? Clock::now() : Clock::time_point();
      const bool is_finite =
          compute->Run(batch_->calls[step.call], step, task.is_nonfinite, checksums_);
      idle_since = Clock::now();
      Finish({task.step, is_finite, thread, begin, idle_since});
    } else if (Clock::now() - idle_since < kSpin) {
      Pause();
    } else {
      asleep_.fetch_add(1);
      const uint32_t wakes = wakes_.load();
      if (claimed_.load() >= submitted_.load() && !is_ending_.load()) wakes_.wait(wakes);
      asleep_.fetch_sub(1);
      idle_since = Clock::now();
    }
  }
}

}  // namespace onebit
