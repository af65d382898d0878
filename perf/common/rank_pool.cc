// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Hands one task at a time to all threads and waits for the last of them.
#include "perf/common/rank_pool.h"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "perf/common/tool_error.h"

namespace onebit::perf {

RankPool::RankPool(int first, int ranks, std::function<void()> release_others)
    : first_(first), ranks_(ranks), release_others_(std::move(release_others)) {
  if (ranks == 1) return;
  try {
    for (int rank = first_; rank < first_ + ranks; ++rank) {
      threads_.emplace_back([this, rank] { Loop(rank); });
    }
  } catch (const std::system_error& error) {
    Stop();
    throw ToolError(fmt::format("cannot start a thread per rank: {}", error.what()));
  } catch (...) {
    Stop();
    throw;
  }
}

RankPool::~RankPool() { Stop(); }

void RankPool::Stop() {
  is_stopping_ = true;
  ++generation_;
  generation_.notify_all();
}

void RankPool::Run(const std::function<void(int rank)>& work) {
  work_ = &work;
  if (threads_.empty()) {
    Execute(first_);
  } else {
    running_ = ranks();
    ++generation_;
    generation_.notify_all();
    for (int running; (running = running_.load()) != 0;) running_.wait(running);
  }
  work_ = nullptr;
  const std::lock_guard lock(mutex_);
  if (has_failed_) throw ToolError(error_, is_consequence_);
}

void RankPool::Loop(int rank) {
  for (uint32_t done = 0;; ++done) {
    generation_.wait(done);
    if (is_stopping_) return;
    Execute(rank);
    if (--running_ == 0) running_.notify_one();
  }
}

void RankPool::Execute(int rank) {
  std::string error;
  bool is_consequence = false;
  try {
    (*work_)(rank);
    return;
  } catch (const std::bad_alloc&) {
    error = "out of memory";
  } catch (const ToolError& failure) {
    error = failure.what();
    is_consequence = failure.is_consequence();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  {
    const std::lock_guard lock(mutex_);
    const bool is_first = !std::exchange(has_failed_, true);
    if (is_first || (is_consequence_ && !is_consequence)) {
      error_ = fmt::format("rank {}: {}", rank, error);
      is_consequence_ = is_consequence;
    }
    if (!is_first) return;
  }
  release_others_();
}

}  // namespace onebit::perf
