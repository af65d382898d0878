// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs plans on host memory by polling: posts messages, computes whatever is ready, and waits only
// when nothing is.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/message_header.h"
#include "comm/comm.h"
#include "exec/batch_progress.h"
#include "exec/comm_trace.h"
#include "exec/compute_threads.h"
#include "exec/phase_gate.h"
#include "plan/plan.h"
#include "steps/step_compute.h"

namespace onebit {

// A queue of fixed capacity: every step passes through one queue once per run.
class StepQueue {
 public:
  void Reserve(size_t capacity) { steps_.resize(std::max(steps_.size(), capacity)); }
  void Clear() { head_ = tail_ = 0; }
  bool empty() const { return head_ == tail_; }
  size_t size() const { return tail_ - head_; }
  void Push(uint32_t step) { steps_[tail_++] = step; }
  uint32_t front() const { return steps_[head_]; }
  uint32_t Pop() { return steps_[head_++]; }
  // Removes the steps for which `remove` returns true. The others keep their order.
  template <typename Remove>
  void RemoveIf(const Remove& remove) {
    size_t kept = head_;
    for (size_t i = head_; i < tail_; ++i) {
      if (!remove(steps_[i])) steps_[kept++] = steps_[i];
    }
    tail_ = kept;
  }

 private:
  std::vector<uint32_t> steps_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

// True if a failed request no longer references user buffers. Those of an aborted endpoint do until
// they are cancelled.
inline bool IsDead(const Status& status) { return status.code() != Code::kAborted; }

// Owned by a communicator's engine and used by one thread at a time. Only Reserve allocates or
// locks; a batch does not.
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
  bool is_done() const { return steps_left_ == 0; }
  Status MakeProgress(bool* has_moved);
  Status Wait(uint64_t timeout_ms);
  // After an error of MakeProgress or Wait: takes the communicator out of use and cancels all
  // requests of the batch. Returns the communicator's error.
  Status Fail(const Status& cause);

  // Results of the last batch, which must have succeeded.
  bool is_finite(size_t call) const { return are_finite_[call] != 0; }
  uint64_t codec_ns() const { return codec_ns_; }  // time spent by the calling thread

 private:
  // A send or receive in progress.
  struct InFlight {
    MessageRequest request = nullptr;
    uint32_t step = 0;
    size_t payload_bytes = 0;
    CommTrace::Time begin;  // if it is traced
  };
  // The next message from one peer.
  struct Inbound {
    MessageRequest request = nullptr;  // null if none is posted
    uint32_t left = 0;                 // messages of this call not posted yet
    uint32_t step = kNoStep;           // header accepted, but the step may not run yet
    alignas(64) HeaderBytes header;
    MessageHeader decoded;
    size_t payload_bytes = 0;
    CommTrace::Time arrival;      // of the header, if it is traced
    std::optional<float> weight;  // of the peer, in the messages so far
  };

  void Finish(uint32_t step, bool is_nonfinite);
  void MakeReady(uint32_t step);

  Status PollSends(bool* has_moved);
  Status PollReceives(bool* has_moved);
  Status PollHeader(uint32_t peer, bool* has_moved);
  CallDescriptor CallOf(const Step& message) const;
  // The call that the next message of `peer` belongs to.
  CallDescriptor CallFrom(uint32_t peer) const;
  // The step that receives the message with this header; kNoStep if it is not expected.
  uint32_t StepFor(uint32_t peer, const MessageHeader& header) const;
  // In a batch of sends and receives: that of the message whose header is posted.
  uint32_t PostedReceive(uint32_t peer) const {
    return plan_->ReceiveInOrder(peer, plan_->MessagesFrom(peer) - inbound_[peer].left - 1);
  }
  // False for elements, and for a message of a group.
  bool IsPacket(const Step& message) const {
    return !batch_.is_group() &&
           HasPackets(batch_.calls[message.call].descriptor, message.exchange);
  }
  // True for elements that a weight in their header belongs to.
  bool HasWeightInHeader(const Step& message) const {
    return MayBeAbsent(message) && !IsPacket(message);
  }
  Status CheckHeader(uint32_t peer);
  Status Accept(uint32_t peer);
  Status CompleteReceive(const InFlight& message);
  // True for messages that have only a weight if their sender is absent, or all whom it stands for.
  bool MayBeAbsent(const Step& message) const {
    const PlanKey& key = plan_->key;
    if (batch_.is_group() || !key.is_weighted) return false;
    if (!key.has_two_levels) return message.exchange == 1;
    return key.collective == Collective::kAllReduce || message.exchange < key.verdict_exchange();
  }
  size_t PayloadBytesOf(const Step& send) const;
  // Takes the weight of a message, which must be the same in all segments.
  Status TakeWeight(const Step& message, float weight);
  // Messages of groups: host_executor_groups.cc. Null in a group, whose messages have one checksum
  // each (Seal).
  kernels::Checksum* packet_checksums() { return batch_.is_group() ? nullptr : checksums_.data(); }
  void FillTables();
  void Seal(const Step& send);
  // Runs all copies that are ready; true if there were any.
  Result<bool> CopyAll();
  void Pack(uint32_t step);
  Status Unpack(uint32_t step);
  Status CheckGroupMessage(const Step& receive, kernels::Checksum expected) const;
  // Fails with kMismatch at the first call in a peer's table that differs from this rank's.
  Status CompareTable(uint32_t peer, std::span<const std::byte> table) const;
  // The same for a peer whose header announces a table, which is received first if it arrives soon.
  Status CompareCalls(uint32_t peer, size_t payload_bytes);
  Status StartSends(bool* has_moved);
  // Returns the header of a message that a step sends.
  HeaderBytes HeaderOf(uint32_t step) const;
  Status PollNative(bool* has_moved);
  // Hands ready steps to the compute threads and takes finished ones back.
  bool ShareSteps();
  // Takes the results of a step that the stream has computed.
  void TakeFromStream(uint32_t step);
  void PauseForStream() const;
  bool ComputeSome();
  StepQueue* MostUrgent();
  size_t ReadySteps() const;
  void CancelAll();
  Status Deadline() const;
  void ReportWait();
  // True for messages of the first exchange that has not ended.
  bool IsDue(const Step& message) const {
    for (uint32_t exchange = 1; exchange < message.exchange; ++exchange) {
      if (exchange_left_[exchange - 1] != 0) return false;
    }
    return true;
  }
  // The segment of a message in words.
  std::string SegmentText(uint32_t exchange, uint32_t segment) const;
  // Whose message has not arrived, or is not taken, in the first exchange that has not ended.
  uint32_t LatePeer() const;
  std::string Progress() const;
  // The batch, for the text of its error.
  std::string Subject() const;

  Comm& comm_;
  Endpoint& endpoint_;
  StepCompute compute_;
  ComputeThreads threads_;
  bool has_threads_ = false;    // StartThreads has run
  CommTrace* trace_ = nullptr;  // null: nothing is recorded

  // State of the batch in progress; sized by Reserve.
  Batch batch_;
  const Plan* plan_ = nullptr;
  std::vector<uint32_t> waiting_for_;         // by step: dependencies not yet done
  std::vector<uint8_t> nonfinite_;            // by step: inherited from its inputs, then its own
  std::vector<MessageState> messages_;        // by step
  std::vector<kernels::Checksum> checksums_;  // by packet
  std::vector<kernels::Checksum> expected_;   // by receive step, from its header
  StepQueue reduces_, compressions_, decodings_, copies_, sends_;
  std::vector<uint8_t> is_full_;  // by peer: it has no room for another message now
  std::vector<InFlight> sending_;
  std::vector<InFlight> receiving_;
  std::vector<Inbound> inbound_;         // by peer
  InFlight native_ = {.step = kNoStep};  // the transport's own allreduce, when started
  size_t native_bytes_ = 0;              // bytes of its result received so far
  std::optional<float> weight_of_all_;   // with two levels, in the results so far
  size_t steps_left_ = 0;
  PhaseGate gate_;
  std::vector<uint32_t> exchange_left_;  // by exchange - 1: messages that are not done
  std::vector<uint8_t> are_finite_;      // by call
  uint64_t codec_ns_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_progress_;
  bool has_reported_wait_ = false;
};

}  // namespace onebit
