// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// One thread per local rank, kept for the life of the tool: a communicator is always driven by the
// same thread, and thread start is never part of a timing. A single rank is driven by the thread of
// the caller, because MPI may be used only by the thread that has started it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace onebit::perf {

class RankPool {
 public:
  // Serves `ranks` ranks, numbered from `first`.
  //
  // release_others: called once, on the thread of the first rank that fails. The others may be
  // blocked in a collective with it; it must make their calls return.
  RankPool(int first, int ranks, std::function<void()> release_others);
  ~RankPool();
  RankPool(const RankPool&) = delete;
  RankPool& operator=(const RankPool&) = delete;

  int ranks() const { return ranks_; }

  // Runs work(rank) on the thread of every rank and returns when all are done. If any threw, throws
  // a ToolError with the text of the one that failed first and not because of another rank.
  void Run(const std::function<void(int rank)>& work);

 private:
  void Stop();
  void Loop(int rank);
  void Execute(int rank);

  const int first_;
  const int ranks_;
  const std::function<void()> release_others_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> generation_ = 0;  // of work_; threads wait for the next
  std::atomic<int> running_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::mutex mutex_;  // guards the failure
  bool has_failed_ = false;
  std::string error_;            // the first, but a cause replaces a consequence
  bool is_consequence_ = false;  // of a failure on another rank
  std::vector<std::jthread> threads_;
};

}  // namespace onebit::perf
