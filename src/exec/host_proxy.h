// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs calls on device memory over a host transport. The calling thread enqueues all computing of a
// call on the caller's stream; a thread moves the messages in between and makes no CUDA call, so
// nothing that the stream waits for can wait for the CUDA driver.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "device/host_stream.h"
#include "exec/call_ledger.h"
#include "exec/call_request.h"
#include "exec/call_runner.h"
#include "exec/dense_slots.h"
#include "exec/host_executor.h"
#include "exec/plan_cache.h"
#include "exec/stream_compute.h"
#include "exec/stream_turns.h"

namespace onebit {

// Belongs to a communicator. For the thread that has entered it, unless stated otherwise.
class HostProxy final : public CallRunner {
 public:
  // Lends `plans` to the calling thread, `executor` to the proxy's thread and `ledger` to both; all
  // outlive it.
  static Result<std::unique_ptr<HostProxy>> Create(Comm& comm, PlanCache& plans, CallLedger& ledger,
                                                   HostExecutor& executor, const Devices& devices,
                                                   int device);
  // Ends calls that do not end by themselves.
  ~HostProxy() override;
  HostProxy(const HostProxy&) = delete;
  HostProxy& operator=(const HostProxy&) = delete;

  int device() const { return compute_->device(); }
  // Allocates for calls with this plan.
  Status Reserve(const Plan& plan);
  // Allocates what the first dense call would, while no stream waits for this rank (memory.h).
  Status ReserveForDense();

  // Enqueues calls.
  Status Run(std::span<GroupMember> members) override;

  // Waits until the proxy's thread has done its part of all calls, so that another thread may use
  // the communicator's endpoint and the executor. Thread-safe.
  void AwaitThread() const;
  // True if it has done that already.
  bool IsThreadIdle() const { return ended_.load(std::memory_order_acquire) == begun_; }
  // Waits until streams have done all calls.
  Status AwaitStreams() const { return compute_->AwaitAll(comm_); }
  Result<bool> IsIdle() const { return compute_->IsIdle(); }
  // Completed calls that met a NaN or infinity. Thread-safe.
  uint64_t nonfinite_calls() const { return compute_->nonfinite_calls(); }

 private:
  // In debuggers and ps.
  static constexpr const char* kThreadName = "onebit-proxy";
  // Limits the calls or groups in flight.
  static constexpr uint64_t kMostJobs = 256;

  // Calls whose messages go together, or a piece of one dense call.
  struct Part {
    std::shared_ptr<const Plan> plan;        // of one call, else null
    std::shared_ptr<const GroupPlan> group;  // of several calls, else null
    Plan sized;                              // of an all-to-all-v: it has the counts of this call
    bool is_sized = false;
    size_t first = 0;  // number of its first call in the job
    size_t count = 0;
    std::vector<Call> calls;
    DensePiece piece;        // of its single call, if is_piece
    size_t piece_index = 0;  // 0 also if it is whole
    bool is_piece = false;
    bool is_computed_on_stream = false;  // has compressed calls
    StreamOrder order;                   // if so
    // Steps of each phase that the stream computes, and the ends of the phases among them.
    std::vector<uint32_t> stream_steps;
    std::vector<size_t> phase_ends;
    std::vector<FaultWords> words;  // by call
    std::byte* packets = nullptr;
    std::byte* staging = nullptr;  // of a piece
    uint64_t sequence = 0;
    uint32_t first_reached = 0;
    uint32_t first_released = 0;

    const Plan& whole() const { return is_sized ? sized : plan != nullptr ? *plan : group->plan; }
    // Turns of the host. Calls of a rank with itself have one, too, though nothing is exchanged.
    uint32_t exchanges() const {
      return is_computed_on_stream ? std::max<uint32_t>(whole().exchanges, 1) : 1;
    }
    const Plan& PlanOf(size_t call) const {
      return plan != nullptr ? whole() : *group->calls[call];
    }
  };
  // An entry in the order in which the stream works on a job.
  struct Op {
    uint32_t part = 0;
    uint32_t phase = 0;
    bool is_first = false;  // phase 0: waits for nothing
    bool is_last = false;   // of the part
  };
  // One call, or a group.
  struct Job {
    std::vector<CallRequest> requests;
    std::vector<CallRequest> staged;  // of dense calls that pass whole
    std::vector<PlannedBatch> batches;
    std::vector<Part> parts;  // the first part_count are in use
    size_t part_count = 0;
    std::vector<Op> ops;
    size_t next_op = 0;          // to be enqueued
    std::byte* words = nullptr;  // OutcomeWords of all calls
    size_t word_stride = 0;
    uint32_t last_released = 0;
    uint32_t last_reached = 0;
    std::vector<uint32_t> digests;
  };

  HostProxy(Comm& comm, PlanCache& plans, CallLedger& ledger, HostExecutor& executor,
            std::unique_ptr<StreamCompute> compute)
      : comm_(comm),
        plans_(plans),
        ledger_(ledger),
        executor_(executor),
        compute_(std::move(compute)),
        slots_(comm, compute_->devices(), compute_->device()) {}

  const Devices& devices() const { return compute_->devices(); }
  TurnWords* turn_words() const { return reinterpret_cast<TurnWords*>(turn_words_.data()); }
  // A job that is not in flight, preferably one whose memory has been used.
  Job* FreeJob();
  FaultWords WordsOf(const Job& job, size_t call) const;
  StreamTurns TurnsOf(const Job& job, const Part& part) const;

  // Preparing, which enqueues nothing.
  Status Prepare(std::span<const CallRequest> requests);
  Status CheckRequests(std::span<const CallRequest> requests) const;
  void CopyRequests(std::span<const CallRequest> requests, Job* job) const;
  void AddParts(Job* job);
  void SetPlanOfPiece(const CallRequest& request, std::shared_ptr<const Plan> whole, Part* part);
  Part& NewPart(Job* job, size_t first, size_t count) const;
  Status ReserveFor(Job* job);
  Status ReservePackets(size_t bytes);
  Status ReserveWords(size_t calls);
  // Equal in all jobs: kernels of the next one read the words of a call before the thread sets
  // them, and must not take a checksum of an earlier one for a decision.
  size_t WordStride() const;
  void BindCalls(Job* job);
  void ArrangeSteps(const Job& job, Part* part) const;
  void AddOps(Job* job) const;
  // The staged form of a part's piece or of a whole dense call.
  CallRequest StagedOf(const Job& job, const Part& part, size_t call) const;

  // Enqueuing, for all communicators of the thread whose calls belong together.
  static Status EnqueueAll(std::span<HostProxy* const> proxies);
  void Number(Job* job);
  bool has_ops() const {
    return next_job_ != nullptr && next_job_->next_op < next_job_->ops.size();
  }
  // The first call of the part at whose turn it is, or a number beyond all calls.
  size_t NextCall() const {
    return has_ops() ? next_job_->parts[next_job_->ops[next_job_->next_op].part].first : SIZE_MAX;
  }
  Status EnqueueTurn();
  Status EnqueueOp(const Op& op);
  Status EnqueuePhase(const Job& job, const Part& part, uint32_t phase);
  Status EnqueueEnd();
  void EndEnqueuing(const Status& status);

  // On the proxy's thread.
  void Run(Job* job) noexcept;
  Status MoveParts(Job* job);
  Status MovePart(Job* job, Part* part);
  Status AwaitReached(uint32_t number) const;
  void AwaitEnd(const Job& job) const;
  void Decide(const Job& job, const Status& status) const;
  void Release(uint32_t number) const;
  void CountCalls(const Job& job, const Status& status);

  Comm& comm_;
  PlanCache& plans_;
  CallLedger& ledger_;
  HostExecutor& executor_;
  const std::unique_ptr<StreamCompute> compute_;
  DenseSlots slots_;
  Memory turn_words_;           // pinned: TurnWords
  GrowableBuffer words_;        // pinned: OutcomeWords
  GrowableBuffer packets_;      // pinned: packets that kernels read and write
  Memory held_;                 // device: checksums of estimates
  AlignedBuffer host_packets_;  // used by the thread: of parts that are computed on the host
  std::vector<std::unique_ptr<Job>> jobs_;        // all
  std::vector<Job*> free_jobs_;                   // those that are not in flight
  std::array<Job*, kMostJobs> jobs_in_flight_{};  // ring
  uint64_t reclaimed_ = 0;                        // jobs that have left it
  Job* next_job_ = nullptr;                       // prepared, not enqueued
  std::atomic<uint64_t> begun_{0};                // jobs
  std::atomic<uint64_t> ended_{0};                // of these, on the proxy's thread
  uint32_t next_reached_ = 1;
  uint32_t next_released_ = 1;
  std::vector<HostProxy*> proxies_;     // of the members of a group, kept from group to group
  std::unique_ptr<HostStream> thread_;  // last, so that it ends first
};

}  // namespace onebit
