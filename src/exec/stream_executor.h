// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs plans on a CUDA stream over a stream-ordered transport. Everything is enqueued and nothing
// is waited for, so calls can be captured into a graph. Besides the state of StreamCompute, a
// word per call, which says whether everything so far is finite and every message was as expected,
// is in device memory. A replayed graph therefore advances all of it by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "device/devices.h"
#include "device/memory.h"
#include "exec/stream_compute.h"
#include "exec/stream_progress.h"
#include "plan/stream_order.h"

namespace onebit {

// Owned by a communicator's engine and used by the calling thread.
class StreamExecutor {
 public:
  static Result<std::unique_ptr<StreamExecutor>> Create(Comm& comm, const Devices& devices,
                                                        int device);
  const Devices& devices() const { return compute_->devices(); }
  int device() const { return compute_->device(); }

  // Allocates for a batch of calls with these plans. Fails if it has to allocate while `stream` is
  // being captured.
  Status Reserve(std::span<const Plan* const> plans, std::optional<onebitStream_t> stream);

  // Runs a batch of calls on one stream: Begin; for each exchange from 1 on, Compute, PostMessages
  // between the endpoint's BeginGroup and EndGroup, and Check; at last Compute and End. After an
  // error of any of them call only Drop. `calls` have no packets yet and must outlive End. The
  // device must be current.
  Status Begin(std::span<Call> calls, onebitStream_t stream);
  uint32_t exchanges() const { return exchanges_; }
  Status Compute(uint32_t phase);
  // The kind of its first step, in a word; null: it has none.
  const char* NameOfPhase(uint32_t phase) const;
  Status PrepareMessages(uint32_t exchange);
  Status PostMessages(uint32_t exchange);
  Status Check(uint32_t exchange);
  Status End();
  // Prevents work enqueued later on `stream` from committing residuals. Safe to call even if Begin
  // never ran or End already returned. Does nothing if the stream is being captured.
  void Drop(onebitStream_t stream);

  // Completed calls that met a NaN or infinity, graph replays included. Thread-safe.
  uint64_t nonfinite_calls() const { return compute_->nonfinite_calls(); }
  // Time since the oldest call began or another one ended, whichever is later. For another thread;
  // makes no CUDA call.
  StreamProgress::Clock::duration Age() { return under_way_.Age(); }
  // Returns the error that a kernel found in a message, as an error of its call; ok if there is
  // none. Thread-safe.
  Status FindFailure() const;
  // True if everything enqueued has completed.
  Result<bool> IsIdle() const { return compute_->IsIdle(); }
  // Waits for that. Fails if it takes too long.
  Status AwaitAll() { return compute_->AwaitAll(comm_); }
  // Waits for that, but at most `limit`. Also true if the device is broken.
  bool IsIdleWithin(std::chrono::milliseconds limit) const { return compute_->IsIdleWithin(limit); }
  Status WatchDevice() { return compute_->WatchDevice(comm_); }
  void EndWatch() { compute_->EndWatch(); }
  // True if a graph contains calls. The library does not see its replays.
  bool has_captured() const { return has_captured_; }
  // Frees all memory, and `more` on the device, on a separate thread, because freeing waits for
  // graph replays. The future is set when it is done. If no thread can be started the future is not
  // valid and nothing has changed.
  std::future<void> FreeInBackground(GrowableBuffer* more);
  // Leaks all memory at the end, because work that never ends may be using it.
  void LeakMemory();

 private:
  // A call's part of the working memory.
  struct Space {
    uint32_t* faults = nullptr;                          // followed by the checksums
    kernels::cuda::PayloadSum* sent = nullptr;           // by packet
    kernels::cuda::PayloadSum* next_received = nullptr;  // of the next message to be checked
    std::byte* bare_headers = nullptr;  // headers of messages without payload, by step
    size_t sum_bytes = 0;               // bytes of faults and checksums
  };
  StreamExecutor(Comm& comm, std::unique_ptr<StreamCompute> compute)
      : comm_(comm), compute_(std::move(compute)), under_way_(compute_->ended_calls()) {}

  // Checksums of the packets that a call sends, some of them twice, and of all its messages.
  static size_t SentSumsOf(const Plan& plan) {
    return plan.packet_count * (plan.key.has_two_levels ? size_t{2} : 1);
  }
  static size_t SumsOf(const Plan& plan);
  static size_t SpaceFor(const Plan& plan);
  // Number of CallMessages of a plan.
  static size_t MessagesOf(const Plan& plan);
  uint32_t ExchangesOf(size_t call) const;
  bool IsPair(size_t call) const { return calls_[call].plan->key.is_pairs(); }
  // The exchanges of the batch before the first one of the call. Pairs follow all other calls, as
  // they do over other transports, because ranks that share a group's collectives may make its
  // sends and receives in other groups.
  uint32_t Before(size_t call) const { return IsPair(call) ? exchanges_before_pairs_ : 0; }
  Space BindCall(Call* call, std::byte* memory) const;
  kernels::cuda::HeaderTemplate TemplateOf(size_t call, const Step& message) const;
  // Address of a message's header, which its payload follows, if any.
  std::byte* HeaderOf(size_t call, uint32_t step) const;
  // Adds messages of a call to those that LaunchMessages launches a kernel for.
  template <typename MessageOf>
  void AddMessages(size_t call, std::span<const uint32_t> steps, const MessageOf& message_of);
  // `long_kernel` takes `long_params`, which lack the list as well.
  template <typename Params, typename LongParams>
  Status LaunchMessages(kernels::cuda::Kernel kernel, Params* params,
                        kernels::cuda::Kernel long_kernel, LongParams long_params);
  Status PostNative(const Call& call, std::span<const uint32_t> steps);

  Comm& comm_;
  const std::unique_ptr<StreamCompute> compute_;
  GrowableBuffer space_;  // device: faults, checksums, headers and packets of a batch
  bool has_captured_ = false;
  StreamProgress under_way_;

  // State of the batch in progress.
  std::span<Call> calls_;
  uint32_t exchanges_ = 0;
  uint32_t exchanges_before_pairs_ = 0;
  std::vector<Space> spaces_;                          // by call
  std::vector<StreamOrder> orders_;                    // by call
  std::vector<kernels::cuda::CallMessages> messages_;  // of the next launch
  // Parameters of launches, kept because they are large.
  kernels::cuda::SealParams seal_;
  kernels::cuda::CheckParams check_;
};

}  // namespace onebit
