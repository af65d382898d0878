// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What the thread of one rank works with, and the ranks of a run: those that this process drives,
// and what all of them, wherever they are, tell each other.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/cuda_device.h"
#include "perf/common/handles.h"
#include "perf/common/host.h"
#include "perf/common/options.h"
#include "perf/common/rank_exchange.h"
#include "perf/common/rank_pool.h"

namespace onebit::perf {

// The side of a rank that is on a CUDA device.
struct DeviceSide {
  explicit DeviceSide(size_t bytes) : send(bytes), recv(bytes) {}

  CudaBuffer send;
  CudaBuffer recv;
  CudaStream stream;
};

// Calls work on `send` and `recv`, or, if there is a device, on its buffers: then the ones here are
// where data is made before it is published, and looked at after it was fetched.
struct RankState {
  std::unique_ptr<DeviceSide> device;  // null: host memory
  CommHandle comm;
  CompressorHandle compressor;  // of the current row; null in dense rows
  Buffer send;
  Buffer recv;

  // A call with these buffers, in bytes from their beginning. In place both are in `recv`.
  RankCall CallAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const;
  RankCall CallInPlaceAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const;

  // Of the buffers that calls work on. Calls must be done, and what these do is done when they
  // return.
  void PublishSend(size_t bytes);                             // from `send`, at their beginning
  void FetchRecv(size_t at, size_t bytes);                    // to the same place in `recv`
  void FillRecv(uint8_t value, size_t bytes);                 // at its beginning
  void CopySendToRecv(size_t from, size_t to, size_t bytes);  // `from`, `to`: where in each

  // Waits until the calls of this rank are done, or have failed. Throws ToolError.
  void Await() const;
};

// The ranks of a run, of which this process drives [first, first + local_count): all of them, each
// with a thread, or one. All processes call the same functions in the same order.
class Ranks {
 public:
  // Communicators of the ranks from `first` on; they are the library's own numbers, too.
  Ranks(std::vector<CommHandle> comms, int first, size_t buffer_bytes, DeviceChoice device = {});
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
  const DeviceChoice& device() const { return device_; }
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
  const DeviceChoice device_;
  int count_ = 0;
  bool is_finished_ = false;
  std::vector<RankState> states_;
  std::unique_ptr<RankPool> pool_;  // last: its threads end before what they use
};

// Where the ranks of this process run when all are its threads.
std::vector<RankPlace> PlacesOfThreads(const Options& options);

// The ranks that the options ask for: threads of this process, or this process and others.
std::unique_ptr<Ranks> MakeRanks(const Options& options);

}  // namespace onebit::perf
