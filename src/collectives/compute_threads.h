// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Threads that run computing steps of a plan beside the thread in the call.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/step_compute.h"
#include "topology/placement.h"

namespace onebit {

// Which thread runs a step changes no result: steps that are ready together write to different
// memory, and each is computed in one fixed order. The thread in the call gives steps out and takes
// them back; nothing here allocates or locks between Reserve and the next one. Between calls, and
// after a moment without work, the threads sleep.
//
// All members are for the thread in the call.
class ComputeThreads {
 public:
  ComputeThreads() : threads_(std::make_unique<std::vector<std::thread>>()) {}
  // Nothing may be outstanding.
  ~ComputeThreads();
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

  // Starts `count` threads on `processors` (empty: any). Once, whatever it returns: those that did
  // start are used. Throws std::bad_alloc.
  Status Start(uint32_t count, uint32_t ranks, const ProcessorSet& processors);
  // Makes room for plans of so many steps. Nothing may be outstanding.
  void Reserve(size_t steps);

  uint32_t size() const { return static_cast<uint32_t>(threads_->size()); }
  // Steps given out and not taken back. More than size() + 1 would only stand in line, behind which
  // a more urgent one would have to wait.
  uint32_t outstanding() const { return static_cast<uint32_t>(given_.load(kOwn) - taken_); }
  bool has_room() const { return size() != 0 && outstanding() <= size(); }

  // `batch` and `checksums` stay valid until everything given out was taken back.
  void Begin(const Batch& batch, kernels::Checksum* checksums) {
    batch_ = &batch;
    checksums_ = checksums;
  }
  void Give(uint32_t step, bool is_nonfinite);

  struct Done {
    uint32_t step = 0;
    bool is_finite = true;
  };
  // False if nothing was finished since.
  bool Take(Done* done);
  // Waits until everything given out is finished, and forgets it: a matter of milliseconds,
  // with a scale for a whole tensor of as long as that tensor takes.
  void Drop();

 private:
  struct Task {
    uint32_t step = 0;
    bool is_nonfinite = false;
  };
  struct Result {
    Done done;
    std::atomic<uint64_t> number{0};  // of the result that lies here, plus 1
  };
  static constexpr auto kOwn = std::memory_order_relaxed;  // of a counter that this thread writes

  void Run(StepCompute* compute);
  bool Claim(uint64_t* number);
  void Finish(const Done& done);

  std::unique_ptr<std::vector<std::thread>> threads_;  // never null
  const int owner_pid_ = getpid();                     // a copy that a fork made has no threads
  ProcessorSet processors_;
  std::vector<StepCompute> computes_;  // one per thread

  const Batch* batch_ = nullptr;
  kernels::Checksum* checksums_ = nullptr;
  // Rings; a number is never used twice, so a thread that was held up cannot take an old one for
  // a new one. The counters only grow.
  std::vector<Task> tasks_;
  std::vector<Result> results_;
  uint64_t mask_ = 0;                  // length of the rings - 1
  std::atomic<uint64_t> given_{0};     // tasks below are in the ring
  std::atomic<uint64_t> claimed_{0};   // tasks below belong to a thread
  std::atomic<uint64_t> finished_{0};  // numbers below are given to results
  uint64_t taken_ = 0;                 // results below were taken back
  std::atomic<uint32_t> asleep_{0};    // threads that need to be woken
  std::atomic<uint32_t> wakes_{0};     // what they wait on
  std::atomic<bool> is_ending_{false};
};

}  // namespace onebit
