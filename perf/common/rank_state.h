// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the thread of one rank works with, and the ranks of a run: those that this process drives,
// and what all of them, wherever they are, tell each other.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "perf/common/handles.h"
#include "perf/common/host.h"
#include "perf/common/options.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/rank_pool.h"

namespace onebit::perf {

struct RankState {
  CommHandle comm;
  CompressorHandle compressor;  // of the current row; null in dense rows
  Buffer send;
  Buffer recv;
};

// The ranks of a run, of which this process drives [first, first + local_count): all of them, each
// with a thread, or one. All processes call the same functions in the same order.
class Ranks {
 public:
  // Communicators of the ranks from `first` on; they are the library's own numbers, too.
  Ranks(std::vector<CommHandle> comms, int first, size_t buffer_bytes);
  // Ranks elsewhere that wait for one of these are released.
  ~Ranks();

  int count() const { return count_; }
  int first() const { return first_; }
  int local_count() const { return static_cast<int>(states_.size()); }
  bool are_all_local() const { return local_count() == count(); }
  // Rank 0 is here: this process checks and reports.
  bool has_root() const { return first_ == 0; }
  bool is_local(int rank) const { return rank >= first_ && rank - first_ < local_count(); }

  RankState& state(int rank) { return states_[static_cast<size_t>(rank - first_)]; }
  const RankState& state(int rank) const { return states_[static_cast<size_t>(rank - first_)]; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  // Runs work on the threads of the local ranks.
  RankPool& pool() { return *pool_; }

  // Runs work(rank) on the thread of every rank and gives all results, by rank, to every process.
  template <class Work>
  auto GatherFromAll(const Work& work) {
    using Record = decltype(work(0));
    std::vector<Record> all;
    pool().Run([&](int rank) {
      std::vector<Record> records = GatherRecords(state(rank).comm.get(), work(rank));
      if (rank == first_) all = std::move(records);
    });
    return all;
  }

  // Copies bytes of rank `root`'s process to all processes; equal sizes. One rank a process only.
  void Broadcast(std::span<std::byte> bytes, int root);

  // Where each rank runs.
  std::vector<RankPlace> Places();

  // The regular end: waits until all ranks are here.
  void Finish();

 private:
  const int first_;
  const size_t buffer_bytes_;
  int count_ = 0;
  bool is_finished_ = false;
  std::vector<RankState> states_;
  std::unique_ptr<RankPool> pool_;  // last: its threads end before what they use
};

// The ranks that the options ask for: threads of this process, or this process and others.
std::unique_ptr<Ranks> MakeRanks(const Options& options);

}  // namespace onebit::perf
