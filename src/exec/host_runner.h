// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// HostRunner: runs calls on host memory over a host transport, on the calling thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "device/memory.h"
#include "exec/call_ledger.h"
#include "exec/call_runner.h"
#include "exec/host_executor.h"
#include "exec/plan_cache.h"

namespace onebit {

// Belongs to a communicator. For the thread that has entered it.
class HostRunner final : public CallRunner {
 public:
  // All must outlive it.
  HostRunner(Comm& comm, PlanCache& plans, CallLedger& ledger);

  HostExecutor& executor() { return executor_; }
  // Allocates packet space for a call with this plan.
  Status ReservePackets(const Plan& plan);

  // Drives communicators in turn, because their ranks may share the thread and wait for each other.
  // A communicator's failure leaves its compressors unchanged and does not affect the others.
  Status Run(std::span<GroupMember> members) override;

 private:
  // Prepare allocates for one call, or those of a group; if it fails, nothing was sent or changed.
  // Then comes MakeProgress until has_ended, with WaitFor whenever nothing has moved, and last, or
  // after an error of these two, Finish with that error: it commits all compressors, or none after
  // an error, and returns the error of the calls.
  Status Prepare(std::span<const CallRequest> requests);
  // Inline, because debuggers show all functions between a call and the network.
  [[gnu::always_inline]] inline Status MakeProgress(bool* has_moved);
  bool has_ended() const { return next_batch_ == batches_.size() && !is_batch_running_; }
  Status Finish(Status status);

  // Fails if the transport refuses the calling thread. Harmless as long as nothing was sent.
  Status CheckThread();
  void StartBatch();
  static void WaitFor(GroupMember* member, uint64_t timeout_ms);
  static void End(GroupMember* member, Status status);

  Comm& comm_;
  PlanCache& plans_;
  CallLedger& ledger_;
  HostExecutor executor_;
  Memory packets_;  // for the largest plan so far; shared by all calls

  // State of the calls in progress, and capacity for later ones.
  std::span<const CallRequest> requests_;
  std::vector<uint8_t> are_finite_;    // by request
  std::vector<PlannedBatch> batches_;  // in the order of requests_
  std::vector<uint64_t> sequences_;    // by batch, set when it starts
  std::vector<Call> calls_;            // calls of the running batch
  std::vector<uint32_t> digests_;      // digests of these calls, if there are several
  size_t next_batch_ = 0;
  bool is_batch_running_ = false;
  uint64_t codec_ns_ = 0;  // of the batches that have ended
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace onebit
