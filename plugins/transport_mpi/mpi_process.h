// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MpiProcess: what MPI is to the whole process: whether it runs, who may call it, and what is left
// to be ended in it.
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

// Text of MPI for an error code.
std::string ErrorText(int code);

// One per process, never destroyed: channels may be closed during exit.
class MpiProcess {
 public:
  static MpiProcess& Get();

  // Starts MPI unless the application has, and looks whether its launcher fits. Logs why not.
  onebitResult_t Start(const plugin::BaseContext& context);

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  uint64_t library() const { return library_; }

  // Whether several threads may be inside MPI at a time.
  bool is_multiple() const { return thread_level_ == MPI_THREAD_MULTIPLE; }
  // Whether the calling thread may call MPI now: its level allows it, and MPI still runs.
  bool IsUsableHere() const;
  // onebitInvalidUsage and a line that says which level is needed, if it may not.
  onebitResult_t CheckThread(const plugin::BaseContext& context) const;

  // Channels in use; while there are any, MPI is not ended.
  void AddChannel() { open_channels_.fetch_add(1, std::memory_order_relaxed); }
  // Takes over a channel that is done with, until its peers are, too. Any thread.
  void Park(std::unique_ptr<Channel> channel);
  // Looks which parked channels can be freed. Any thread.
  void PollParked();

  // Something of ours inside MPI will never end: MPI_Finalize could wait for it.
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
  const int owner_pid_ = getpid();  // a copy that a fork made ends nothing
  // relaxed: read when everything else is over.
  std::atomic<bool> is_broken_{false};
  std::atomic<int> open_channels_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> parked_;  // guarded by mutex_
};

}  // namespace onebit::mpi
