// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs plans on host memory by polling: posts messages, computes whatever is ready, and waits only
// when nothing is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "exec/comm_trace.h"
#include "exec/compute_threads.h"
#include "exec/message_pump.h"
#include "exec/step_schedule.h"
#include "plan/plan.h"
#include "steps/step_compute.h"

namespace onebit {

// Belongs to the HostRunner of a communicator, which lends it to its HostProxy. For one thread at a
// time. Only Reserve allocates or locks; a batch does not.
class HostExecutor {
 public:
  explicit HostExecutor(Comm& comm);

  // Records the next batch and all later ones, or none if `trace` is null. Borrowed.
  void set_trace(CommTrace* trace) { trace_ = trace; }

  // Allocates for batches up to the size of this plan with this many calls.
  void Reserve(const Plan& plan, size_t calls = 1);

  // Starts helper threads when a call first has enough elements to profit. For a thread that has
  // entered the communicator. Fails if the user has asked for threads and the system does not
  // provide them.
  Status StartThreads(size_t elements);

  // Runs a batch: Start, then MakeProgress until is_done. MakeProgress never blocks, so a thread
  // can drive several executors in turn. When none of them has moved it may Wait for at most
  // `timeout_ms`.
  void Start(const Batch& batch);
  // With a stream: all but its last phase, which the caller has to release.
  bool is_done() const { return schedule_.is_done(); }
  Status MakeProgress(bool* has_moved);
  Status Wait(uint64_t timeout_ms);
  // After an error of MakeProgress or Wait: takes the communicator out of use and cancels all
  // requests of the batch. Returns the communicator's error.
  Status Fail(const Status& cause);

  // Results of the last batch, which must have succeeded.
  bool is_finite(size_t call) const { return schedule_.is_finite(call); }
  uint64_t codec_ns() const { return codec_ns_; }  // time spent by the calling thread

 private:
  // Null in a group, whose messages have one checksum each.
  kernels::Checksum* packet_checksums() { return batch_.is_group() ? nullptr : checksums_.data(); }
  // Messages of a group: sets the checksums of those whose pieces are packed.
  void SealAll();
  // Packs, seals and unpacks all that are ready; true if there were any.
  Result<bool> CopyAll();
  // Hands ready steps to the compute threads and takes finished ones back.
  bool ShareSteps();
  // Takes the results of a step that the stream has computed.
  void TakeFromStream(uint32_t step);
  void PauseForStream() const;
  bool ComputeSome();
  Status Deadline() const;
  void ReportWait();
  std::string Progress() const;
  // The batch, for the text of its error.
  std::string Subject() const;

  Comm& comm_;
  Endpoint& endpoint_;
  StepCompute compute_;
  ComputeThreads threads_;
  bool has_threads_ = false;    // StartThreads has run
  CommTrace* trace_ = nullptr;  // null: nothing is recorded

  // The batch in progress.
  Batch batch_;
  const Plan* plan_ = nullptr;
  StepSchedule schedule_;
  MessagePump messages_;
  std::vector<kernels::Checksum> checksums_;  // by packet
  uint64_t codec_ns_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_progress_;
  bool has_reported_wait_ = false;
};

}  // namespace onebit
