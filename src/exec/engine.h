// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives on one communicator: picks the plan, provides packet space, commits the result.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "device/memory.h"
#include "exec/call_outcome.h"
#include "exec/call_request.h"
#include "exec/comm_trace.h"
#include "exec/host_executor.h"
#include "exec/host_proxy.h"
#include "exec/plan_cache.h"
#include "exec/stream_engine.h"
#include "plan/plan.h"
#include "plan/planned_compressor.h"

namespace onebit {

// For the thread that has acquired or entered the communicator, unless stated otherwise. Calls are
// made through RunCalls (run_calls.h).
class Engine {
 public:
  // `comm` must outlive the engine.
  explicit Engine(Comm& comm);
  ~Engine();

  Comm& comm() const { return comm_; }

  // Records all calls from now on. `pattern` is the value of ONEBIT_TRACE. Must come before
  // UseDevice and OrderByStreams.
  Status Trace(const std::string& pattern);

  // For a host transport: enables calls on device memory. Later calls must name the same device.
  Status UseDevice(const Devices& devices, int device);
  // For a transport whose messages are stream-ordered; must come before anything else. Calls are
  // then enqueued on streams of this device, or block if their buffers are in host memory.
  Status OrderByStreams(const Devices& devices, int device);
  bool is_stream_ordered() const { return stream_ != nullptr; }
  // Runs calls instead of this engine if they are stream-ordered; null otherwise.
  StreamEngine* stream() const { return stream_.get(); }
  // Runs calls on device memory over a host transport; null before UseDevice.
  HostProxy* proxy() const { return proxy_.get(); }
  // Finds errors of calls on streams that occurred after they had returned. Thread-safe.
  Status CheckStreams() { return stream_ == nullptr ? OkStatus() : stream_->CheckStream(); }
  // Waits until all calls on CUDA streams have ended, and nothing uses their compressors.
  Status AwaitStreams();
  Result<bool> AreStreamsIdle() const;
  // Waits until no other thread uses the communicator's endpoint.
  void AwaitProxy() const {
    if (proxy_ != nullptr) proxy_->AwaitThread();
  }
  // Completed calls on CUDA streams that met a NaN or infinity. Thread-safe.
  uint64_t nonfinite_stream_calls() const;
  // The device of the calls, after UseDevice or OrderByStreams.
  std::optional<int> device() const;

  // Creates a compressor for this communicator.
  Result<PlannedCompressor> CreateCompressor(Compressor::Config config);
  // The plan that a compressor with this configuration gets here; reserves its packet space, too.
  Result<std::shared_ptr<const Plan>> PlanCompressor(const Compressor::Config& config);

  // Plans calls with weights for a compressor of an allreduce or a reduce-scatter on host memory,
  // which then needs one (Compressor::set_weight).
  Status PlanWeights(PlannedCompressor* planned);

  // One level for a compressor that chose two, and has made no call. Swap gives it that for good; a
  // second time it takes it back.
  struct OneLevel {
    Compressor::Layout layout;
    std::shared_ptr<const Plan> plan;
    void Swap(PlannedCompressor* planned);
  };
  Result<OneLevel> PrepareOneLevel(const PlannedCompressor& planned);

  // Allocates for a dense call, so that RunCalls does not.
  Status ReserveDense(const CallRequest& request);

  // Sums dense values in place; exact if all but one rank contribute zeros. ReserveSum allocates
  // for it.
  Status ReserveSum(size_t count, kernels::DataType type);
  Status Sum(void* values, size_t count, kernels::DataType type);

  // Blocking calls: one, or those of a group. Prepare allocates; if it fails, nothing was sent or
  // changed. Then call MakeProgress until has_ended, with a Wait of at most `timeout_ms` whenever
  // nothing has moved. Last, or after an error of MakeProgress or Wait, call Finish with that
  // error: it commits all compressors, or none after an error, and returns the error of the calls.
  Status Prepare(std::span<const CallRequest> requests);
  Status MakeProgress(bool* has_moved);
  bool has_ended() const { return next_batch_ == batches_.size() && !is_batch_running_; }
  Status Wait(uint64_t timeout_ms) { return executor_.Wait(timeout_ms); }
  Status Finish(Status status);
  // The outcome of the first call, once Finish has succeeded.
  CallOutcome outcome() const {
    return are_finite_[0] != 0 ? CallOutcome::kFinite : CallOutcome::kNonfinite;
  }

 private:
  bool TakesOneExchange(const Compressor::Config& config) const;
  bool TakesTwoLevels(const Compressor::Config& config) const;
  // Fails where a new compressor cannot have the levels that it asks for.
  Status CheckLevels(const Compressor::Config& config) const;
  void StartBatch();
  void EndCall(const CallRequest& request, const Call& call, CallOutcome outcome);
  // Allocates for a plan of this many calls on host memory.
  Status Reserve(const Plan& plan, size_t calls = 1);
  // Allocates for a call of such a compressor.
  Status ReserveFor(const Compressor::Config& config, const Plan& plan);
  // Fails if the transport refuses the calling thread. Harmless as long as nothing was sent.
  Status CheckThread();

  Comm& comm_;
  PlanCache plans_;
  std::string trace_pattern_;
  std::unique_ptr<CommTrace> trace_;            // null: nothing is recorded
  std::unique_ptr<CommTrace> enqueuing_trace_;  // the same, for the proxy
  HostExecutor executor_;
  Memory packets_;                        // for the largest plan so far; shared by all calls
  std::unique_ptr<StreamEngine> stream_;  // null unless calls are stream-ordered

  // State of the calls in progress, and capacity for later ones.
  std::span<const CallRequest> requests_;
  std::vector<uint8_t> are_finite_;    // by request
  std::vector<PlannedBatch> batches_;  // in the order of requests_
  std::vector<uint64_t> sequences_;    // by batch, set when it starts
  std::vector<Call> calls_;            // calls of the running batch
  std::vector<uint32_t> digests_;      // digests of these calls, if there are several
  size_t next_batch_ = 0;
  bool is_batch_running_ = false;
  std::chrono::steady_clock::time_point begin_;

  std::unique_ptr<HostProxy> proxy_;  // last, because its thread uses the executor
};

}  // namespace onebit
