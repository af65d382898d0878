// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the thread of one rank works with, and the ranks together.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "perf/common/handles.h"
#include "perf/common/options.h"
#include "perf/common/rank_pool.h"

namespace onebit::perf {

struct RankState {
  CommHandle comm;
  CompressorHandle compressor;  // of the current row; null in dense rows
  Buffer send;
  Buffer recv;
};

// Communicators, buffers and threads of all ranks of a run.
class Ranks {
 public:
  explicit Ranks(const Options& options);

  int count() const { return static_cast<int>(states_.size()); }
  RankState& state(int rank) { return states_[static_cast<size_t>(rank)]; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  RankPool& pool() { return *pool_; }

  // Send or receive buffers of all ranks, in rank order.
  std::vector<const void*> sends() const;
  std::vector<const void*> recvs() const;

 private:
  size_t buffer_bytes_;
  std::vector<RankState> states_;
  std::unique_ptr<RankPool> pool_;  // last: its threads end before what they use
};

}  // namespace onebit::perf
