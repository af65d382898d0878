// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Keeps the host and a CUDA stream in step with each other: the stream computes the phases of a
// batch, and the host moves the messages between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/stream_turns.h"
#include "plan/plan.h"
#include "steps/batch.h"

namespace onebit {

// Phase i of a batch comes before the messages of exchange i + 1. By default the gate is open: the
// host computes everything, and there are no phases.
class PhaseGate {
 public:
  PhaseGate() = default;
  // Open unless the batch has turns. Borrows its plan, its calls and its turns.
  explicit PhaseGate(const Batch& batch)
      : turns_(batch.turns), plan_(batch.plan), calls_(batch.calls) {}

  bool is_open() const { return turns_ == nullptr; }
  // True if the stream computes the step, so that the host must not.
  bool IsOnStream(uint32_t step) const { return !is_open() && IsComputedStep(step); }
  // True if the stream computes a phase whose results the host needs.
  bool IsStreamsTurn() const {
    return !is_open() && next_phase_ < plan_->exchanges && next_phase_ <= released_phase_;
  }
  // The stream's steps of the last phase. Nobody on the host waits for their results.
  size_t CountLastSteps() const;

  // Calls take(step) for each step of phases that the stream has computed since, then lets it
  // compute the next one if the messages before it are there: `exchange_left` has the number of
  // those that are not, by exchange - 1. Returns true if anything has moved.
  template <typename Take>
  bool Pass(std::span<const uint32_t> exchange_left, const Take& take) {
    if (is_open()) return false;
    bool has_moved = false;
    while (IsStreamsTurn() && turns_->HasComputed(next_phase_)) {
      for (const uint32_t step : turns_->order->compute(next_phase_)) {
        if (IsComputedStep(step)) take(step);
      }
      ++next_phase_;
      has_moved = true;
    }
    while (released_phase_ < next_phase_ && next_phase_ < plan_->exchanges &&
           exchange_left[next_phase_ - 1] == 0) {
      turns_->Release(++released_phase_);
      has_moved = true;
    }
    return has_moved;
  }

  // Findings of the stream in the phases computed so far: faults of a call, and the checksum of
  // this rank's estimate of a chunk.
  bool HasFaults(uint32_t call) const { return turns_->call(call).faults != 0; }
  kernels::Checksum Held(uint32_t call, uint32_t chunk) const { return turns_->held(call)[chunk]; }

 private:
  bool IsComputedStep(uint32_t step) const;

  const StreamTurns* turns_ = nullptr;  // null: open
  const Plan* plan_ = nullptr;
  std::span<const Call> calls_;
  uint32_t next_phase_ = 0;      // the phases before it are computed
  uint32_t released_phase_ = 0;  // the stream may compute up to this one
};

}  // namespace onebit
