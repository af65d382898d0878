// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives of one communicator over a stream-ordered transport: enqueues calls, and watches
// them from another thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "device/memory.h"
#include "exec/call_request.h"
#include "exec/comm_trace.h"
#include "exec/plan_cache.h"
#include "exec/stream_executor.h"
#include "exec/stream_watch.h"

namespace onebit {

// For the calling thread, which has entered the communicator, unless stated otherwise.
class StreamEngine {
 public:
  // `comm`, `plans` and `trace`, which may be null, must outlive it.
  static Result<std::unique_ptr<StreamEngine>> Create(Comm& comm, PlanCache& plans,
                                                      const Devices& devices, int device,
                                                      CommTrace* trace);
  ~StreamEngine();
  StreamEngine(const StreamEngine&) = delete;
  StreamEngine& operator=(const StreamEngine&) = delete;

  int device() const { return stream_->device(); }
  // Fails if a compressor with residuals at this location cannot serve the communicator.
  Status CheckResidualLocation(const MemoryLocation& location) const;
  Status Reserve(const Plan& plan);

  // Enqueues calls; blocks if their buffers are in host memory.
  Status Run(std::span<const CallRequest> requests);
  // The same on several communicators of the thread: Prepare on each, which enqueues nothing, then
  // EnqueueAll.
  Status Prepare(std::span<const CallRequest> requests);
  static Status EnqueueAll(std::span<StreamEngine* const> engines);
  // Storage for a list of engines, kept from group to group.
  std::vector<StreamEngine*>& ScratchForEngines() { return engines_; }

  // Finds errors that occurred after calls had returned, and takes the communicator out of use if
  // there is one. Thread-safe.
  Status CheckStream();
  // Waits until all calls have ended.
  Status AwaitStream() { return stream_->AwaitAll(); }
  Result<bool> IsIdle() const { return stream_->IsIdle(); }
  // Completed calls that met a NaN or infinity, graph replays included. Thread-safe.
  uint64_t nonfinite_calls() const { return stream_->nonfinite_calls(); }

 private:
  StreamEngine(Comm& comm, PlanCache& plans, CommTrace* trace)
      : comm_(comm), plans_(plans), trace_(trace) {}

  Status CheckLocation(const CallRequest& request) const;
  Status RunFromHost(std::span<const CallRequest> requests);
  static Status EnqueuePhases(std::span<StreamEngine* const> engines);
  static Status ExchangeOnStreams(std::span<StreamEngine* const> engines, uint32_t exchange);
  void EndBatch(bool has_succeeded);
  Status AwaitCall();
  // Called by the watch thread.
  void WatchStream() noexcept;
  Status CheckDeadline();
  void EndStream();
  void AwaitCause() const;

  Comm& comm_;
  PlanCache& plans_;
  CommTrace* const trace_;  // null: nothing is recorded
  std::unique_ptr<StreamExecutor> stream_;
  std::vector<StreamEngine*> engines_;  // ScratchForEngines

  // State of the batch in progress, and capacity for later ones.
  std::span<const CallRequest> requests_;
  std::vector<std::shared_ptr<const Plan>> owned_plans_;  // by request
  std::vector<const Plan*> plans_in_batch_;               // the same or borrowed plans
  std::vector<Call> calls_;                               // by request

  // For calls on host buffers.
  GrowableBuffer host_calls_;               // their buffers on the device
  std::vector<CallRequest> host_requests_;  // the calls with these buffers
  DeviceStream host_calls_stream_;          // created by the first of these calls

  std::unique_ptr<StreamWatch> watch_;  // last: destroyed first, because it calls back
};

}  // namespace onebit
