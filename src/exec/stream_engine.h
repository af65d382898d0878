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
#include "exec/call_ledger.h"
#include "exec/call_request.h"
#include "exec/call_runner.h"
#include "exec/plan_cache.h"
#include "exec/stream_executor.h"
#include "exec/stream_watch.h"

namespace onebit {

// For the calling thread, which has entered the communicator, unless stated otherwise.
class StreamEngine final : public CallRunner {
 public:
  // All but `devices` must outlive it.
  static Result<std::unique_ptr<StreamEngine>> Create(Comm& comm, PlanCache& plans,
                                                      CallLedger& ledger, const Devices& devices,
                                                      int device);
  ~StreamEngine() override;
  StreamEngine(const StreamEngine&) = delete;
  StreamEngine& operator=(const StreamEngine&) = delete;

  int device() const { return stream_->device(); }
  // Fails if a compressor with residuals at this location cannot serve the communicator.
  Status CheckResidualLocation(const MemoryLocation& location) const;
  Status Reserve(const Plan& plan);

  // Enqueues calls. Those of a single communicator block if their buffers are in host memory.
  Status Run(std::span<GroupMember> members) override;

  // Finds errors that occurred after calls had returned, and takes the communicator out of use if
  // there is one. Thread-safe.
  Status CheckStream();
  // Waits until all calls have ended.
  Status AwaitStream() { return stream_->AwaitAll(); }
  Result<bool> IsIdle() const { return stream_->IsIdle(); }
  // Completed calls that met a NaN or infinity, graph replays included. Thread-safe.
  uint64_t nonfinite_calls() const { return stream_->nonfinite_calls(); }

 private:
  StreamEngine(Comm& comm, PlanCache& plans, CallLedger& ledger)
      : comm_(comm), plans_(plans), ledger_(ledger), engines_(1) {}

  Status CheckLocation(const CallRequest& request) const;
  Status RunFromHost(std::span<const CallRequest> requests);
  // Prepares everything for EnqueueAll without enqueuing anything.
  Status Prepare(std::span<const CallRequest> requests);
  // Enqueues what several communicators of the thread have prepared.
  static Status EnqueueAll(std::span<StreamEngine* const> engines);
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
  CallLedger& ledger_;
  std::unique_ptr<StreamExecutor> stream_;

  // State of the batch in progress, and capacity for later ones.
  std::vector<StreamEngine*> engines_;  // of all communicators whose calls are enqueued together
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
