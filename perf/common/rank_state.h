// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The state of one rank, and the ranks of a run: those that this process drives, and how all of
// them exchange records.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "perf/common/collective.h"
#include "perf/common/comm_handles.h"
#include "perf/common/cuda_device.h"
#include "perf/common/host_facts.h"
#include "perf/common/rank_link.h"
#include "perf/common/rank_pool.h"
#include "perf/common/sweep_options.h"

namespace onebit::perf {

// The part of a rank's state that is on a CUDA device.
struct DeviceBuffers {
  explicit DeviceBuffers(size_t bytes) : send(bytes), recv(bytes) {}

  CudaBuffer send;
  CudaBuffer recv;
  CudaStream stream;
};

// Calls work on `send` and `recv`, or on the buffers of `device` if there is one. In that case the
// host buffers stage data: inputs before PublishSend, results after FetchRecv.
struct RankState {
  std::unique_ptr<DeviceBuffers> device;  // null: host memory
  RankLink* link = nullptr;
  CommHandle comm;              // null where the ranks are those of another system
  CompressorHandle compressor;  // of the current row; null in dense rows
  CompressorHandle receiver;    // of its receives, if `compressor` is that of its sends
  Buffer send;
  Buffer recv;

  // Returns the arguments of a call at these byte offsets. In place, both are in `recv`.
  RankCall CallAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const;
  RankCall CallInPlaceAt(size_t send_at, size_t recv_at, onebitCompressor_t with) const;

  // These act on the buffers that calls use. They require that no call is in progress, and are
  // complete when they return.
  void PublishSend(size_t bytes);                             // copies the first bytes of `send`
  void FetchRecv(size_t at, size_t bytes);                    // copies to the same offset in `recv`
  void FillRecv(uint8_t value, size_t bytes);                 // fills the first bytes
  void CopySendToRecv(size_t from, size_t to, size_t bytes);  // offsets in the two buffers

  // Waits until the calls of this rank are done, or have failed. Throws ToolError.
  void Await() const;
};

// The ranks of a run. This process drives [first, first + local_count): either all of them, each
// with a thread, or one. All processes call the same functions in the same order.
class Ranks {
 public:
  // Ranks of the library. Their numbers in the communicators are those from `first` on.
  //
  // allocated_bytes: size of each buffer, of which the first buffer_bytes are used; 0: as many.
  Ranks(std::vector<CommHandle> comms, int first, size_t buffer_bytes, DeviceChoice device = {},
        size_t allocated_bytes = 0);
  // One rank of any system. `link` is borrowed.
  Ranks(RankLink& link, size_t buffer_bytes, size_t allocated_bytes);
  // Releases ranks elsewhere that wait for one of these, unless Finish was called.
  ~Ranks();

  int count() const { return count_; }
  int first() const { return first_; }
  int local_count() const { return static_cast<int>(states_.size()); }
  bool are_all_local() const { return local_count() == count(); }
  // True if rank 0 is here: this process checks and reports.
  bool has_root() const { return first_ == 0; }
  bool is_local(int rank) const { return rank >= first_ && rank - first_ < local_count(); }

  RankState& state(int rank) { return states_[static_cast<size_t>(rank - first_)]; }
  const RankState& state(int rank) const { return states_[static_cast<size_t>(rank - first_)]; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  bool counts_sent() const { return states_.front().link->counts_sent(); }
  const DeviceChoice& device() const { return device_; }
  // Runs work on the threads of the local ranks.
  RankPool& pool() { return *pool_; }

  // Runs work(rank) on the thread of every rank and gives all results, by rank, to every process.
  template <class Work>
  auto GatherFromAll(const Work& work) {
    using Record = decltype(work(0));
    std::vector<Record> all;
    pool().Run([&](int rank) {
      std::vector<Record> records = GatherRecords(*state(rank).link, work(rank));
      if (rank == first_) all = std::move(records);
    });
    return all;
  }

  // Copies the bytes of rank `root`'s process to all processes; equal sizes. It requires one rank a
  // process.
  void Broadcast(std::span<std::byte> bytes, int root);

  // Returns where each rank runs.
  std::vector<RankInfo> GatherInfo();

  // The regular end: waits until all ranks are here.
  void Finish();

 private:
  void Start(size_t allocated_bytes);

  const int first_;
  const size_t buffer_bytes_;
  const DeviceChoice device_;
  int count_ = 0;
  bool is_finished_ = false;
  std::vector<CommLink> links_;  // of the library
  std::vector<RankState> states_;
  std::unique_ptr<RankPool> pool_;  // last: its threads end before what they use
};

// Returns where ranks run that are threads of this process.
std::vector<RankInfo> InfoOfThreads(const Options& options);

// Makes the ranks that the options ask for: threads of this process, or one of several processes.
std::unique_ptr<Ranks> MakeRanks(const Options& options);

}  // namespace onebit::perf
