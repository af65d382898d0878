// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "exec/step_schedule.h"

namespace onebit {
namespace {

// Steps whose end lets the stream go on with the phase behind their exchange. Sends are among them,
// because that phase may overwrite what they send.
bool IsArrival(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive ||
         step.kind == StepKind::kUnpack;
}

}  // namespace

void StepSchedule::Reserve(const Plan& plan, size_t calls) {
  const size_t steps = plan.steps.size();
  if (steps > waiting_for_.size()) {
    nonfinite_.resize(steps);
    for (StepQueue* queue : {&reduces_, &compressions_, &decodings_, &copies_, &seals_, &sends_}) {
      queue->Reserve(steps);
    }
    waiting_for_.resize(steps);  // last, because its size tells whether all others were resized
  }
  if (calls > are_finite_.size()) are_finite_.resize(calls);
  if (plan.exchanges > exchange_left_.size()) exchange_left_.resize(plan.exchanges);
}

void StepSchedule::Start(const Batch& batch, CommTrace* trace) {
  plan_ = batch.plan;
  trace_ = trace;
  steps_left_ = plan_->steps.size();
  std::fill_n(are_finite_.begin(), batch.calls.size(), uint8_t{1});
  for (StepQueue* queue : {&reduces_, &compressions_, &decodings_, &copies_, &seals_, &sends_}) {
    queue->Clear();
  }
  native_ = kNoStep;
  gate_ = PhaseGate(batch);
  std::fill(exchange_left_.begin(), exchange_left_.end(), 0u);
  for (uint32_t step = 0; step < plan_->steps.size(); ++step) {
    if (IsArrival(plan_->steps[step])) ++exchange_left_[plan_->steps[step].exchange - 1u];
    waiting_for_[step] = plan_->steps[step].dependency_count;
    nonfinite_[step] = 0;
  }
  for (uint32_t step = 0; step < plan_->steps.size(); ++step) {
    if (waiting_for_[step] == 0) MakeReady(step);
  }
  steps_left_ -= gate_.CountLastSteps();
}

// Steps on the stream run in phases.
void StepSchedule::MakeReady(uint32_t step) {
  if (gate_.IsOnStream(step)) return;
  switch (plan_->steps[step].kind) {
    case StepKind::kStage:
    case StepKind::kHostSum:
    case StepKind::kReduce:
    case StepKind::kVerdict:
      reduces_.Push(step);
      break;
    case StepKind::kCompress:
      compressions_.Push(step);
      break;
    case StepKind::kDecode:
    case StepKind::kCopy:
      decodings_.Push(step);
      break;
    case StepKind::kPack:
    case StepKind::kUnpack:
      copies_.Push(step);
      break;
    case StepKind::kSend:
      (plan_->steps[step].call == kAllCalls ? seals_ : sends_).Push(step);
      break;
    case StepKind::kNative:
      native_ = step;
      break;
    case StepKind::kReceive:
      break;
  }
}

// Steps inherit the non-finite flag of the steps whose results they use, which are those of their
// own call. A send or receive may wait for other calls only to keep the order of messages.
void StepSchedule::Finish(uint32_t step, bool is_nonfinite) {
  const Step& done = plan_->steps[step];
  if (is_nonfinite) {
    nonfinite_[step] = 1;
    are_finite_[done.call] = 0;
  }
  --steps_left_;
  if (done.kind == StepKind::kNative) native_ = kNoStep;
  if (IsArrival(done) && --exchange_left_[done.exchange - 1u] == 0 && trace_ != nullptr) {
    trace_->EndExchange(done.exchange);
  }
  for (uint32_t i = 0; i < done.successor_count; ++i) {
    const uint32_t successor = plan_->successors[done.first_successor + i];
    if (plan_->steps[successor].call == done.call) nonfinite_[successor] |= nonfinite_[step];
    if (--waiting_for_[successor] == 0) MakeReady(successor);
  }
}

// Steps that others wait for go first: a reduced chunk serves all peers, a compressed chunk one
// peer, a decoded chunk nobody.
StepQueue* StepSchedule::MostUrgent() {
  return !reduces_.empty()        ? &reduces_
         : !compressions_.empty() ? &compressions_
         : !decodings_.empty()    ? &decodings_
                                  : nullptr;
}

}  // namespace onebit
