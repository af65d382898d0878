// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// MessagePump: moves the messages of a batch, and checks those of the peers against its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/message_header.h"
#include "comm/comm.h"
#include "exec/batch_progress.h"
#include "exec/comm_trace.h"
#include "exec/step_schedule.h"
#include "plan/plan.h"
#include "steps/batch.h"

namespace onebit {

// Belongs to an executor, whose schedule says which steps may run, and learns here of those that
// have ended. Only Reserve allocates, and what finds the reason of an error.
class MessagePump {
 public:
  // Both must outlive it.
  MessagePump(Comm& comm, StepSchedule& schedule);

  void Reserve(const Plan& plan);
  // Takes over the messages of a batch, which is borrowed until they have ended or were cancelled.
  // `checksums`, by packet, are those of the packets that are sent, and become those of the ones
  // that arrive. `trace` may be null.
  void Start(const Batch& batch, std::span<kernels::Checksum> checksums, CommTrace* trace);
  // Starts, tests and checks what it can, and never blocks. Sets *has_moved if anything has moved.
  // Inline for the same reason as HostRunner::MakeProgress.
  [[gnu::always_inline]] Status Poll(bool* has_moved) {
    ONEBIT_TRY(endpoint_.Progress());
    ONEBIT_TRY(StartSends(has_moved));
    ONEBIT_TRY(PollReceives(has_moved));
    ONEBIT_TRY(PollSends(has_moved));
    return schedule_.native() == kNoStep ? OkStatus() : PollNative(has_moved);
  }
  // Makes the endpoint forget all messages in progress.
  void CancelAll();

  // By step: how far its message is.
  std::span<const MessageState> states() const { return messages_; }
  // Whose message has not arrived, or is not taken, in the first exchange that has not ended.
  uint32_t LatePeer() const;

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

  Status StartSends(bool* has_moved);
  // Calls take(message) for each of `messages` that has ended, and forgets it.
  template <typename Take>
  Status TakeEnded(std::vector<InFlight>* messages, bool* has_moved, const Take& take);
  Status PollSends(bool* has_moved);
  Status PollReceives(bool* has_moved);
  Status PollHeader(uint32_t peer, bool* has_moved);
  Status PollNative(bool* has_moved);
  // Returns the header of a message that a step sends.
  HeaderBytes HeaderOf(uint32_t step) const;
  size_t PayloadBytesOf(const Step& send) const;

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
    return !batch_->is_group() &&
           HasPackets(batch_->calls[message.call].descriptor, message.exchange);
  }
  // True for elements that a weight in their header belongs to.
  bool HasWeightInHeader(const Step& message) const {
    return MayBeAbsent(message) && !IsPacket(message);
  }
  // True for messages that have only a weight if their sender is absent, or all whom it stands for.
  bool MayBeAbsent(const Step& message) const {
    const PlanKey& key = plan_->key;
    if (batch_->is_group() || !key.is_weighted) return false;
    if (!key.has_two_levels) return message.exchange == 1;
    return key.collective == Collective::kAllReduce || message.exchange < key.verdict_exchange();
  }
  Status CheckHeader(uint32_t peer);
  // Compares the calls of a group with those of a peer whose header announces a table, which is
  // received first if it arrives soon.
  Status CompareCalls(uint32_t peer, size_t payload_bytes);
  Status Accept(uint32_t peer);
  Status CompleteReceive(const InFlight& message);
  // Takes the weight of a message, which must be the same in all segments.
  Status TakeWeight(const Step& message, float weight);
  // The segment of a message in words.
  std::string SegmentText(uint32_t exchange, uint32_t segment) const;

  Comm& comm_;
  Endpoint& endpoint_;
  StepSchedule& schedule_;

  // State of the batch in progress; sized by Reserve.
  const Batch* batch_ = nullptr;
  const Plan* plan_ = nullptr;
  CommTrace* trace_ = nullptr;
  std::span<kernels::Checksum> checksums_;   // by packet
  std::vector<MessageState> messages_;       // by step
  std::vector<kernels::Checksum> expected_;  // by receive step, from its header
  std::vector<uint8_t> is_full_;             // by peer: it has no room for another message now
  std::vector<InFlight> sending_;
  std::vector<InFlight> receiving_;
  std::vector<Inbound> inbound_;        // by peer
  MessageRequest native_ = nullptr;     // the transport's own allreduce, when started
  CommTrace::Time native_begin_;        // if it is traced
  size_t native_bytes_ = 0;             // bytes of its result received so far
  std::optional<float> weight_of_all_;  // with two levels, in the results so far
};

}  // namespace onebit
