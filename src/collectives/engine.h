// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs collectives on one communicator: picks the plan, lends it packet space, commits its result.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/group_plan.h"
#include "collectives/host_executor.h"
#include "collectives/plan.h"
#include "collectives/planned_compressor.h"
#include "comm/comm.h"
#include "device/memory.h"

namespace onebit {

struct DeviceSide;
class StreamExecutor;
class StreamWatch;

// The collectives enter the communicator themselves; for what else there is the caller acquires or
// enters it.
class Engine {
 public:
  // `comm` must outlive the engine.
  explicit Engine(Comm& comm);
  ~Engine();

  // Lets calls work on the memory of a device; the first one counts, another one is an error.
  Status UseDevice(const Devices& devices, int device);
  // Over a transport whose messages are in the order of streams, before anything else: calls are
  // enqueued on the streams of this device, or block if their buffers are in host memory.
  Status OrderByStreams(const Devices& devices, int device);
  bool is_stream_ordered() const;
  // The device that calls work on, once there is one.
  std::optional<int> device() const;
  // Whether a compressor with residuals there can serve this communicator.
  Status CheckResidualLocation(const MemoryLocation& location) const;
  // An error that came up after stream-ordered calls had returned puts the communicator out of use.
  // From any thread.
  Status CheckStream();
  // That are done, replays included. From any thread.
  uint64_t nonfinite_calls_on_stream() const;
  // Waits until all stream-ordered calls are done.
  Status AwaitStream();

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

  struct Buffers {
    const void* input = nullptr;
    void* output = nullptr;
    size_t count = 0;
    kernels::DataType type = kernels::DataType::kF32;
    MemoryLocation location = {};     // of both; if on a device, the one of UseDevice
    onebitStream_t stream = nullptr;  // of CUDA; of a place on a device
  };
  // One call, checked: all that it needs to run, now or at the end of a group.
  struct Request {
    PlanKey key;
    CallDescriptor descriptor;  // but for its number
    Buffers buffers;
    PlannedCompressor* compressor = nullptr;  // null: dense
    PairCounts pairs;                         // of an all-to-all-v
  };
  Request AllReduceRequest(const Buffers& buffers, ReduceOp op,
                           PlannedCompressor* compressor) const;
  Request BroadcastRequest(const Buffers& buffers, uint32_t root) const;
  // engine_chunks.cc. Reduce-scatter, all-gather and all-to-all: `count` is that of each rank's
  // part; the larger buffer has one for each. An op where the collective has one.
  Request ChunksRequest(Collective collective, const Buffers& buffers, ReduceOp op,
                        PlannedCompressor* compressor) const;
  // `count` is 0, the buffers begin where `pairs` counts from; its lists outlive the call.
  Request AllToAllvRequest(const Buffers& buffers, const PairCounts& pairs,
                           PlannedCompressor* compressor) const;
  Request BarrierRequest() const;
  Status Call(const Request& request);
  // compressor null: dense. sync_weight: of a sync, the bits of its weight sum, which the ranks
  // compare.
  Status AllReduce(const Buffers& buffers, ReduceOp op, PlannedCompressor* compressor,
                   std::optional<uint32_t> sync_weight = std::nullopt);
  Status Barrier();

  // The calls of a group (group_run.h), for a thread that has entered the communicator. Prepare
  // takes all memory that they need; after an error of it nothing was sent and nothing changed.
  // Then Go until has_ended, and Finish, which commits all compressors or, after an error, none;
  // Wait, at most so long, when nothing has moved.
  Status PrepareGroup(std::span<const Request> requests);
  Status GoGroup(bool* has_moved);
  bool has_group_ended() const { return next_batch_ == batches_.size() && !is_batch_running_; }
  Status WaitGroup(uint64_t timeout_ms) { return executor_.Wait(timeout_ms); }
  void FinishGroup(bool has_succeeded);

  // Stream-ordered calls, for a thread that has entered the communicators: those of one, and those
  // of several, where each is prepared before all are enqueued.
  Status RunOnStream(std::span<const Request> requests);
  Status PrepareStream(std::span<const Request> requests);
  static Status EnqueueAll(std::span<Engine* const> engines);
  // On the thread that makes calls on the memory of a device, before their stream waits for the one
  // that runs them: takes the memory that they need, because CUDA may wait for streams when it
  // gives some. They are those of a group, or one alone. Others may be running.
  Status PrepareForDevice(std::span<const Request> requests);
  // Memory for a list of engines that this one is in, kept from group to group.
  std::vector<Engine*>& ScratchForEngines() { return engines_; }

  // Whether a call goes through host memory: dense, on the memory of a device.
  static bool IsStaged(const Request& request);

 private:
  struct CachedPlan {
    std::shared_ptr<const Plan> plan;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMaxCachedPlans = 64;
  struct CachedGroupPlan {
    std::vector<PlanKey> keys;
    std::shared_ptr<const GroupPlan> plan;
    uint64_t last_use = 0;
  };
  static constexpr size_t kMaxCachedGroupPlans = 64;
  // Calls of a group that run together.
  struct GroupBatch {
    GroupCut cut;                            // of the group's requests
    std::shared_ptr<const Plan> plan;        // of a call alone, else null
    std::shared_ptr<const GroupPlan> group;  // of several calls, else null
    uint64_t sequence = 0;                   // once it was started
  };

  std::shared_ptr<const Plan> PlanFor(const PlanKey& key);
  std::shared_ptr<const Plan> StreamPlanFor(PlanKey key);
  std::shared_ptr<const Plan> CachedPlanFor(const PlanKey& key);
  std::shared_ptr<const Plan> PlanFor(const Request& request);
  std::shared_ptr<const GroupPlan> GroupPlanFor(GroupCut cut);
  Status PrepareBatch(GroupCut cut);
  static const Plan& PlanOf(const GroupBatch& batch, size_t call);
  void TakeCounts(const GroupBatch& batch);
  void StartBatch(GroupBatch* batch);
  Status ReservePackets(const Plan& plan);
  // engine_device.cc
  DeviceSteps* device_steps() const;
  Status ReserveForDevice(const Plan& plan);
  Result<Memory> NewPackets(size_t bytes) const;
  // Packet space: pinned once there is a device.
  std::byte* packets() const;
  Status RunStaged(const Request& request);
  Result<std::span<const Request>> StageGroup(std::span<const Request> requests);
  Status UnstageGroup();
  Status FillNanOnDevice(const onebit::Call& call);
  // engine_stream.cc
  Status CallOnStream(const Request& request);
  Status RunFromHost(std::span<const Request> requests);
  Status CheckLocation(const Request& request) const;
  static Status EnqueuePhases(std::span<Engine* const> engines);
  static Status ExchangeOnStreams(std::span<Engine* const> engines, uint32_t exchange);
  void EndOnStream(bool has_succeeded);
  Status AwaitCall();
  Status CheckDeadline();
  void LookAfterStream() noexcept;
  void EndStream();
  void AwaitCause() const;
  // Fails if the transport refuses the calling thread: as long as nothing was sent, that breaks
  // nothing.
  Status CheckThread();
  CallDescriptor DescriptorOf(const PlanKey& key) const;
  // Of a call that uses `compressor`.
  CallDescriptor DescriptorOf(const PlannedCompressor& compressor) const;
  // Of a call that uses `compressor`.
  Request CompressedRequest(const Buffers& buffers, ReduceOp op,
                            PlannedCompressor* compressor) const;
  std::shared_ptr<const Plan> PairPlanFor(const Request& request);
  // Whether all ranks hold the same of each other, if the call was to find out.
  Status CheckHeld(const onebit::Call& call);
  Result<kernels::Checksum> HeldBy(const onebit::Call& call, uint32_t chunk);
  // Between Enter and Exit. Run counts the call; RunNumbered does it.
  Status Run(const Request& request);
  Status RunNumbered(const Plan& plan, const Request& request);
  onebit::Call CallOf(const Request& request, const Plan& plan, std::byte* packets) const;
  // What a call that ended leaves behind, in its output and its compressor.
  Status Settle(const Request& request, const onebit::Call& call, bool is_finite);
  void CountCall(const Request& request, const Plan& plan);
  void CountMessages();

  Comm& comm_;
  HostExecutor executor_;
  std::unique_ptr<StreamExecutor> stream_;                 // of stream-ordered calls
  std::vector<std::shared_ptr<const Plan>> stream_plans_;  // by request of the batch
  std::vector<const Plan*> plans_in_batch_;                // the same
  GrowableBuffer host_calls_;                              // buffers of calls from host memory
  std::vector<Request> host_requests_;                     // these calls, with such buffers
  DeviceStream host_calls_stream_;                         // of them, once there was one
  std::vector<Engine*> engines_;                           // ScratchForEngines
  std::unique_ptr<DeviceSide> device_;                     // once a call worked on one
  Memory packets_;                 // of the largest plan so far; calls take turns. See packets()
  std::vector<CachedPlan> plans_;  // the least recently used one makes room
  uint64_t uses_ = 0;

  std::shared_ptr<Plan> dense_pairs_;  // of all-to-all-v, once there was one

  // Of the group in progress, or room for the next one.
  std::span<const Request> originals_;  // as they were given
  std::span<const Request> requests_;   // the same, or with buffers to which they were brought
  std::vector<PlanKey> keys_;           // by request
  std::vector<uint8_t> are_finite_;     // by request
  std::vector<GroupBatch> batches_;     // of the requests, in their order
  std::vector<onebit::Call> calls_;     // of the batch that runs
  std::vector<uint32_t> digests_;       // likewise
  size_t next_batch_ = 0;
  bool is_batch_running_ = false;
  std::chrono::steady_clock::time_point group_begin_;
  std::vector<CachedGroupPlan> group_plans_;  // the least recently used one makes room
  std::unique_ptr<StreamWatch> watch_;        // last: it calls back, so it goes first
};

}  // namespace onebit
