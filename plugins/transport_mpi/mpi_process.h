// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MpiProcess: the process-wide state of MPI: if it runs, which threads may call it, and which
// channels remain to be ended.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/common/base_context.h"

namespace onebit::mpi {

class Channel;

// MPI's text for an error code.
std::string ErrorText(int code);

// A singleton, never destroyed: channels may be closed during exit.
class MpiProcess {
 public:
  static MpiProcess& Get();

  // Starts MPI unless the application has, and checks that its launcher fits. Logs the cause of an
  // error.
  onebitResult_t Start(const plugin::BaseContext& context);

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  uint64_t library() const { return library_; }

  // True if several threads may be inside MPI at a time.
  bool is_multiple() const { return thread_level_ == MPI_THREAD_MULTIPLE; }
  // True if the calling thread may call MPI now: its level allows it, and MPI still runs.
  bool IsUsableHere() const;
  // Returns onebitInvalidUsage, and logs which level is needed, if the calling thread may not use
  // MPI.
  onebitResult_t CheckThread(const plugin::BaseContext& context) const;

  // Counts channels in use; while there are any, MPI is not finalized.
  void AddChannel() { open_channels_.fetch_add(1, std::memory_order_relaxed); }
  // Keeps a closed channel until its peers have closed it, too. Thread-safe.
  void Park(std::unique_ptr<Channel> channel);
  // Frees parked channels that can be freed. Thread-safe.
  void PollParked();

  // Records that an operation of ours inside MPI will never end: MPI_Finalize could wait for it.
  void SetBroken() { is_broken_.store(true, std::memory_order_relaxed); }

 private:
  MpiProcess() = default;

  onebitResult_t Init(const plugin::BaseContext& context);
  void HookFinalize();
  static int OnFinalize(MPI_Comm comm, int key, void* value, void* extra);
  static void AtExit(int status, void* argument);
  // Frees parked channels for a bounded time. True if none is left.
  bool EndParked(uint64_t timeout_ns);

  int world_rank_ = 0;
  int world_size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  uint64_t library_ = 0;
  bool is_started_ = false;         // guarded by mutex_
  const int owner_pid_ = getpid();  // a forked copy ends nothing
  // relaxed: read when everything else has ended.
  std::atomic<bool> is_broken_{false};
  std::atomic<int> open_channels_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> parked_;  // guarded by mutex_
};

}  // namespace onebit::mpi
