// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives of one communicator whose transport sends messages in the order of CUDA streams:
// calls are enqueued, and a thread watches what becomes of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/plan_cache.h"
#include "collectives/stream_executor.h"
#include "collectives/stream_watch.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace onebit {

// For the thread in the call, which has entered the communicator, unless it says otherwise.
class StreamEngine {
 public:
  // `comm` and `plans` must outlive it.
  static Result<std::unique_ptr<StreamEngine>> Create(Comm& comm, PlanCache& plans,
                                                      const Devices& devices, int device);
  ~StreamEngine();
  StreamEngine(const StreamEngine&) = delete;
  StreamEngine& operator=(const StreamEngine&) = delete;

  int device() const { return stream_->device(); }
  // Fails if a compressor with residuals there cannot serve the communicator.
  Status CheckResidualLocation(const MemoryLocation& location) const;
  Status Reserve(const Plan& plan);

  // Enqueues calls, or makes them block if their buffers are in host memory.
  Status Run(std::span<const CallRequest> requests);
  // The same on several communicators that the thread drives: Prepare on each, which enqueues
  // nothing, then EnqueueAll.
  Status Prepare(std::span<const CallRequest> requests);
  static Status EnqueueAll(std::span<StreamEngine* const> engines);
  // Memory for a list of engines that this one is in, kept from group to group.
  std::vector<StreamEngine*>& ScratchForEngines() { return engines_; }

  // Looks for an error that came up after calls had returned, and puts the communicator out of use
  // if there is one. Thread-safe.
  Status CheckStream();
  // Waits until all calls are done.
  Status AwaitStream() { return stream_->AwaitAll(); }
  // Completed calls that met a NaN or infinity, graph replays included. Thread-safe.
  uint64_t nonfinite_calls() const { return stream_->nonfinite_calls(); }

 private:
  StreamEngine(Comm& comm, PlanCache& plans) : comm_(comm), plans_(plans) {}

  Status CheckLocation(const CallRequest& request) const;
  Status RunFromHost(std::span<const CallRequest> requests);
  static Status EnqueuePhases(std::span<StreamEngine* const> engines);
  static Status ExchangeOnStreams(std::span<StreamEngine* const> engines, uint32_t exchange);
  void EndBatch(bool has_succeeded);
  Status AwaitCall();
  // Of the watch.
  void LookAfterStream() noexcept;
  Status CheckDeadline();
  void EndStream();
  void AwaitCause() const;

  Comm& comm_;
  PlanCache& plans_;
  std::unique_ptr<StreamExecutor> stream_;
  std::vector<StreamEngine*> engines_;  // ScratchForEngines

  // Of the batch in progress, or capacity for the next one.
  std::span<const CallRequest> requests_;
  std::vector<std::shared_ptr<const Plan>> owned_plans_;  // by request
  std::vector<const Plan*> plans_in_batch_;               // the same
  std::vector<Call> calls_;                               // by request

  // Of calls whose buffers are in host memory.
  GrowableBuffer host_calls_;               // their buffers on the device
  std::vector<CallRequest> host_requests_;  // the calls with these buffers
  DeviceStream host_calls_stream_;          // once there was one

  std::unique_ptr<StreamWatch> watch_;  // last: it calls back, so it goes first
};

}  // namespace onebit
