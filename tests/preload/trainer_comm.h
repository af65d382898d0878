// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A trainer has this between itself and NCCL: communicators, a stream, and a watchdog.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace onebit::testing {

// The watchdog has aborted the communicators.
struct Aborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The rank of a job, its device and its communicators. One thread uses it.
class Trainer {
 public:
  // Rank 0 writes the unique id to the file, where the others find it.
  Trainer(int rank, int ranks, const std::string& id_file);
  // Ends all communicators in order.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  ncclComm_t world() const { return world_; }
  // Collective over the world. The communicator ends with the trainer.
  ncclComm_t Split(int color, int key, const char* name);

  // Averages of several tensors are one group of NCCL.
  void UseGroups() { has_groups_ = true; }

  // Reduce or copy in place. They return when the result is there, or throw Aborted.
  void Average(ncclComm_t comm, const std::vector<std::vector<float>*>& tensors);
  void Sum(ncclComm_t comm, std::vector<float>* tensor);
  void Broadcast(ncclComm_t comm, std::vector<float>* tensor);
  // Calls `action` once, between the calls of the next Average and its result.
  void BeforeNextResult(void (*action)()) { before_result_ = action; }

 private:
  struct Buffer {
    CUdeviceptr device = 0;
    float* host = nullptr;  // pinned
    size_t count = 0;
  };

  Buffer& BufferOf(size_t index, size_t count);
  void ToDevice(const std::vector<float>& tensor, const Buffer& buffer);
  void FromDevice(const Buffer& buffer, size_t count);
  void AwaitStream();
  void Check(ncclResult_t result, const char* what) const;
  template <typename Call>
  ncclResult_t Locked(Call call) {
    const std::lock_guard lock(mutex_);
    return call();
  }
  void Watch();

  const int rank_;
  const int ranks_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  ncclComm_t world_ = nullptr;
  std::vector<Buffer> buffers_;
  void (*before_result_)() = nullptr;
  bool has_groups_ = false;
  std::mutex mutex_;  // guards comms_; held during every call of NCCL, as PyTorch does
  std::vector<ncclComm_t> comms_;
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> is_ending_{false};
  std::thread watchdog_;
};

}  // namespace onebit::testing
