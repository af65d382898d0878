// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// StepSchedule: which steps of a batch may run, and which of them goes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/comm_trace.h"
#include "exec/phase_gate.h"
#include "plan/plan.h"

namespace onebit {

// A queue of fixed capacity: a step enters each queue at most once per run.
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

// Belongs to an executor. Only Reserve allocates.
class StepSchedule {
 public:
  void Reserve(const Plan& plan, size_t calls);
  // The most steps of a plan for which it has reserved.
  size_t most_steps() const { return waiting_for_.size(); }
  // Puts the steps that wait for nothing into their queues. `trace` may be null.
  void Start(const Batch& batch, CommTrace* trace);

  // With a stream: all but its last phase, which the caller has to release.
  bool is_done() const { return steps_left_ == 0; }
  bool is_finite(size_t call) const { return are_finite_[call] != 0; }

  // True once the steps that a step depends on have ended.
  bool MayRun(uint32_t step) const { return waiting_for_[step] == 0; }
  // The flag that a step has inherited from its inputs, or that the message of a receive brings.
  bool is_nonfinite(uint32_t step) const { return nonfinite_[step] != 0; }
  void set_nonfinite(uint32_t step, bool is_nonfinite) { nonfinite_[step] = is_nonfinite ? 1 : 0; }

  // Records that a step has ended, and puts those that waited for it alone into their queues.
  void Finish(uint32_t step, bool is_nonfinite);

  // These hold steps that are ready. Receives are in no queue: MayRun says when their payload may
  // come. A message of a group is sealed before its send is ready.
  StepQueue& copies() { return copies_; }  // packing and unpacking messages of a group
  StepQueue& seals() { return seals_; }
  StepQueue& sends() { return sends_; }
  // The transport's own allreduce, when it is ready; else kNoStep.
  uint32_t native() const { return native_; }
  // The queue of computing steps whose results are wanted first; null if no step is ready.
  StepQueue* MostUrgent();
  size_t ComputableSteps() const {
    return reduces_.size() + compressions_.size() + decodings_.size();
  }

  // True for messages of the first exchange that has not ended.
  bool IsDue(const Step& message) const {
    for (uint32_t exchange = 1; exchange < message.exchange; ++exchange) {
      if (exchange_left_[exchange - 1] != 0) return false;
    }
    return true;
  }

  // Keeps in step with the stream: calls take(step) for each step that it has computed. Returns
  // true if anything has moved.
  template <typename Take>
  bool PassGate(const Take& take) {
    return gate_.Pass(exchange_left_, take);
  }
  const PhaseGate& gate() const { return gate_; }

 private:
  void MakeReady(uint32_t step);

  const Plan* plan_ = nullptr;
  CommTrace* trace_ = nullptr;
  PhaseGate gate_;
  std::vector<uint32_t> waiting_for_;  // by step: dependencies not yet done
  std::vector<uint8_t> nonfinite_;     // by step: inherited from its inputs, then its own
  std::vector<uint8_t> are_finite_;    // by call
  StepQueue reduces_, compressions_, decodings_, copies_, seals_, sends_;
  uint32_t native_ = kNoStep;
  size_t steps_left_ = 0;
  std::vector<uint32_t> exchange_left_;  // by exchange - 1: messages that are not done
};

}  // namespace onebit
