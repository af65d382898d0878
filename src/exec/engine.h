// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Engine: what a communicator needs for its calls. It plans them, and has their runners.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/comm.h"
#include "exec/call_ledger.h"
#include "exec/call_request.h"
#include "exec/comm_trace.h"
#include "exec/host_proxy.h"
#include "exec/host_runner.h"
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

  // Those that run calls here: on host memory over a host transport; on device memory over one,
  // null before UseDevice; and over a stream-ordered transport, null unless calls are.
  HostRunner& host() { return host_; }
  HostProxy* proxy() const { return proxy_.get(); }
  StreamEngine* stream() const { return stream_.get(); }
  // The one of them that runs a call on such memory.
  CallRunner& RunnerFor(const MemoryLocation& location);

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
  // Makes calls possible on the memory of a compressor's residuals, or says why they are not.
  Status TakeLocation(const Compressor::Config& config);
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

 private:
  bool TakesOneExchange(const Compressor::Config& config) const;
  bool TakesTwoLevels(const Compressor::Config& config) const;
  // Fails where a new compressor cannot have the levels that it asks for.
  Status CheckLevels(const Compressor::Config& config) const;
  // Allocates for a plan of a call on host memory.
  Status Reserve(const Plan& plan);
  // Allocates for a call of such a compressor.
  Status ReserveFor(const Compressor::Config& config, const Plan& plan);

  Comm& comm_;
  PlanCache plans_;
  std::string trace_pattern_;
  std::unique_ptr<CommTrace> trace_;            // null: nothing is recorded
  std::unique_ptr<CommTrace> enqueuing_trace_;  // the same, for the proxy
  CallLedger ledger_;
  HostRunner host_;
  std::unique_ptr<StreamEngine> stream_;  // null unless calls are stream-ordered
  std::unique_ptr<HostProxy> proxy_;      // last, because its thread uses the executor
};

}  // namespace onebit
