// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs plans on host memory by progress: posts exchanges, computes whatever is ready, waits only
// when nothing is.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "codec/message_header.h"
#include "collectives/call_progress.h"
#include "collectives/compute_threads.h"
#include "collectives/plan.h"
#include "collectives/step_compute.h"
#include "comm/comm.h"

namespace onebit {

// First in, first out, of fixed capacity: every step passes through a queue once a run.
class StepQueue {
 public:
  void Reserve(size_t capacity) { steps_.resize(std::max(steps_.size(), capacity)); }
  void Clear() { head_ = tail_ = 0; }
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void Push(uint32_t step) { steps_[tail_++] = step; }
  uint32_t front() const { return steps_[head_]; }
  uint32_t Pop() { return steps_[head_++]; }

 private:
  std::vector<uint32_t> steps_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

// Owned by a communicator's engine, used by the thread in the call. Run allocates nothing and takes
// no lock; Reserve does.
class HostExecutor {
 public:
  explicit HostExecutor(Comm& comm);

  // Makes room for plans as large as this one.
  void Reserve(const Plan& plan);

  // Starts the threads that help with this plan, the first time it is worth it. For a thread that
  // has entered the communicator. Fails if the system does not give the threads that were asked
  // for.
  Status StartThreads(const Plan& plan);

  struct Outcome {
    bool is_finite = true;
    uint64_t codec_ns = 0;  // of the caller
  };
  // Runs the call to its end. After an error no request is outstanding and the communicator has
  // failed.
  Result<Outcome> Run(const Call& call);

 private:
  // A message on its way.
  struct InFlight {
    onebitTransportRequest request = nullptr;
    uint32_t step = 0;
  };
  // The next message of one peer.
  struct Inbound {
    onebitTransportRequest request = nullptr;  // null: none posted
    uint32_t left = 0;                         // messages of this call not yet posted
    uint32_t step = kNoStep;  // header accepted, waiting for its step to be allowed
    alignas(64) HeaderBytes header;
    MessageHeader decoded;
  };

  // After an error `situation` tells where in the call it was.
  Status LoopWithoutThrowing(std::string* situation);
  Status Loop();
  void Start(const Call& call);
  void Finish(uint32_t step, bool is_nonfinite);
  void MakeReady(uint32_t step);

  Status Poll(bool* has_moved);
  Status PollSends(bool* has_moved);
  Status PollReceives(bool* has_moved);
  Status PollHeader(uint32_t peer, bool* has_moved);
  Status CheckHeader(uint32_t peer);
  Status Accept(uint32_t peer);
  Status CompleteReceive(uint32_t step);
  Status StartSends(bool* has_moved);
  Status PollNative(bool* has_moved);
  // Gives ready steps to the compute threads and takes them back.
  bool ShareSteps();
  bool ComputeOne();
  StepQueue* MostUrgent();
  size_t ReadySteps() const;
  void CancelAll();
  Status FailComm(Status cause, const std::string& situation);
  Status Deadline() const;
  std::string Progress() const;

  Comm& comm_;
  Endpoint& endpoint_;
  StepCompute compute_;
  ComputeThreads threads_;
  bool has_threads_ = false;  // were started, if there are any to spare

  // Of the run in progress; sized by Reserve.
  const Call* call_ = nullptr;
  const Plan* plan_ = nullptr;
  std::vector<uint32_t> waiting_for_;         // by step: dependencies not yet done
  std::vector<uint8_t> nonfinite_;            // by step: flag of what it depends on, then its own
  std::vector<MessageState> messages_;        // by step
  std::vector<kernels::Checksum> checksums_;  // by packet
  std::vector<kernels::Checksum> expected_;   // by receive step: what its header promised
  StepQueue reduces_, compressions_, decodings_, sends_;
  std::vector<InFlight> sending_;
  std::vector<InFlight> receiving_;
  std::vector<Inbound> inbound_;         // by peer
  InFlight native_ = {.step = kNoStep};  // the transport's own allreduce, once it may start
  size_t native_bytes_ = 0;              // of its result, seen so far
  size_t steps_left_ = 0;
  bool is_finite_ = true;
  uint64_t codec_ns_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_progress_;
};

}  // namespace onebit
