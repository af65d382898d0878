// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Threads that share the computing steps of a plan with the calling thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "steps/step_compute.h"
#include "topology/placement.h"

namespace onebit {

// Results do not depend on which thread runs a step: steps that are ready together write to
// different memory, and each is computed in a fixed order. The calling thread hands steps out and
// takes them back; between one Reserve and the next nothing here allocates or locks. Between calls,
// and after a moment without work, the threads sleep.
//
// All members are for the calling thread.
class ComputeThreads {
 public:
  ComputeThreads() = default;
  // Requires that no step is outstanding.
  ~ComputeThreads();
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

  // Starts `count` threads on `processors` (empty: any). Call it once: after an error, the threads
  // that did start are used. Throws std::bad_alloc.
  Status Start(uint32_t count, uint32_t ranks, const ProcessorSet& processors);
  // Allocates for plans of this many steps. Requires that no step is outstanding.
  void Reserve(size_t steps);

  uint32_t size() const { return static_cast<uint32_t>(threads_.size()); }
  // Steps handed out and not yet taken back. More than size() + 1 would only queue up, and a more
  // urgent step would have to wait behind them.
  uint32_t outstanding() const { return static_cast<uint32_t>(submitted_.load(kOwn) - taken_); }
  bool has_room() const { return size() != 0 && outstanding() <= size(); }

  // `batch` and `checksums` must stay valid until all steps were taken back.
  // With `is_timed`, steps come back with the time that they took.
  void Begin(const Batch& batch, kernels::Checksum* checksums, bool is_timed) {
    batch_ = &batch;
    checksums_ = checksums;
    is_timed_ = is_timed;
  }
  void Submit(uint32_t step, bool is_nonfinite);

  using Clock = std::chrono::steady_clock;
  struct Done {
    uint32_t step = 0;
    bool is_finite = true;
    uint32_t thread = 0;  // from 1 on
    Clock::time_point begin;
    Clock::time_point end;
  };
  // Returns false if no step has finished since the last call.
  bool Take(Done* done);
  // Waits until all outstanding steps have finished, and discards their results. This takes
  // milliseconds, or with a tensor-wide scale as long as the compression of a whole tensor.
  void Drop();

 private:
  struct Task {
    uint32_t step = 0;
    bool is_nonfinite = false;
  };
  struct Result {
    Done done;
    std::atomic<uint64_t> number{0};  // 1 + number of the result in this entry
  };
  static constexpr auto kOwn = std::memory_order_relaxed;  // counters that one thread writes

  void Run(StepCompute* compute, uint32_t thread);
  bool Claim(uint64_t* number);
  void Finish(const Done& done);

  std::vector<std::thread> threads_;
  ProcessorSet processors_;
  std::vector<StepCompute> computes_;  // one per thread

  const Batch* batch_ = nullptr;
  kernels::Checksum* checksums_ = nullptr;
  bool is_timed_ = false;
  // Rings. Counters only grow, so a delayed thread cannot mistake an old entry for a new one.
  std::vector<Task> tasks_;
  std::vector<Result> results_;
  uint64_t mask_ = 0;                   // length of the rings - 1
  std::atomic<uint64_t> submitted_{0};  // tasks below this are in the ring
  std::atomic<uint64_t> claimed_{0};    // tasks below this belong to a thread
  std::atomic<uint64_t> finished_{0};   // numbers below this belong to results
  uint64_t taken_ = 0;                  // results below this were taken back
  std::atomic<uint32_t> asleep_{0};     // threads that need to be woken
  std::atomic<uint32_t> wakes_{0};      // what they wait on
  std::atomic<bool> is_ending_{false};
};

}  // namespace onebit
