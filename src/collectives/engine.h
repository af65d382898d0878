// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives on one communicator: picks the plan, lends it packet space, commits its result.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/host_executor.h"
#include "collectives/plan.h"
#include "collectives/plan_cache.h"
#include "collectives/planned_compressor.h"
#include "collectives/stream_engine.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace onebit {

class DeviceSide;

// For the thread that has acquired or entered the communicator, unless it says otherwise. Calls are
// made by RunCalls (run_calls.h).
class Engine {
 public:
  // `comm` must outlive the engine.
  explicit Engine(Comm& comm);
  ~Engine();

  Comm& comm() const { return comm_; }

  // Lets calls work on the memory of a device; the first one counts, another one is an error.
  Status UseDevice(const Devices& devices, int device);
  // Over a transport whose messages are in the order of streams, before anything else: calls are
  // enqueued on the streams of this device, or block if their buffers are in host memory.
  Status OrderByStreams(const Devices& devices, int device);
  bool is_stream_ordered() const { return stream_ != nullptr; }
  // What makes calls instead of this engine once they are stream-ordered; null before.
  StreamEngine* stream() const { return stream_.get(); }
  // The device that calls work on, once there is one.
  std::optional<int> device() const;

  // Completes `config` (server_elements) and makes a compressor for this communicator.
  Result<PlannedCompressor> CreateCompressor(Compressor::Config config);
  // What a compressor of this configuration gets here: its plan, with room for its packets, and
  // the length of its server residual.
  struct NewBinding {
    std::shared_ptr<const Plan> plan;
    size_t server_elements = 0;
  };
  Result<NewBinding> PlanCompressor(const Compressor::Config& config);

  // Dense sum in place, in exact arithmetic where all but one rank have zeros; ReserveSum takes the
  // memory for it.
  Status ReserveSum(size_t count, kernels::DataType type);
  Status Sum(void* values, size_t count, kernels::DataType type);

  // Calls that block: one, or those of a group. Prepare takes all memory that they need; after an
  // error of it nothing was sent and nothing changed. Then Go until has_ended; Wait, at most so
  // long, when nothing has moved. In the end, or after an error of Go or Wait, which it is told,
  // Finish: it commits all compressors or, after an error, none. Returns the error of the calls.
  Status Prepare(std::span<const CallRequest> requests);
  Status Go(bool* has_moved);
  bool has_ended() const { return next_batch_ == batches_.size() && !is_batch_running_; }
  Status Wait(uint64_t timeout_ms) { return executor_.Wait(timeout_ms); }
  Status Finish(Status status);

  // DeviceSide::Prepare.
  Status PrepareForDevice(std::span<const CallRequest> requests);

 private:
  enum class Ending : uint8_t { kNotBegun, kFailed, kNonfinite, kFinite };

  void StartBatch();
  Status Settle(const CallRequest& request, const Call& call, Ending ending);
  // Makes room for a plan of so many calls.
  Status Reserve(const Plan& plan, size_t calls = 1);
  // Packet space: pinned once there is a device.
  std::byte* packets() const;
  // Null without a device.
  DeviceSteps* device_steps() const;
  // Fails if the transport refuses the calling thread: as long as nothing was sent, that breaks
  // nothing.
  Status CheckThread();
  // Fails if the call was to find out whether all ranks hold the same of each other, and they do
  // not.
  Status CheckHeld(const Call& call);

  Comm& comm_;
  PlanCache plans_;
  HostExecutor executor_;
  Memory packets_;                        // of the largest plan so far; calls take turns
  std::unique_ptr<DeviceSide> device_;    // once a call worked on one
  std::unique_ptr<StreamEngine> stream_;  // once calls are stream-ordered

  // Of the calls in progress, or capacity for the next ones.
  std::span<const CallRequest> originals_;  // as they were given
  std::span<const CallRequest> requests_;   // the same, or with buffers to which they were copied
  std::vector<uint8_t> are_finite_;         // by request
  std::vector<CallBatch> batches_;          // of the requests, in their order
  std::vector<uint64_t> sequences_;         // by batch, once it was started
  std::vector<Call> calls_;                 // of the batch that runs
  std::vector<uint32_t> digests_;           // of these calls, if there are several
  size_t next_batch_ = 0;
  bool is_batch_running_ = false;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace onebit
