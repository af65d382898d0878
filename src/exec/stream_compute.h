// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Enqueues the computing of calls on CUDA streams, whatever moves their messages.
//
// State that the host executor keeps on the host is in device memory here: the current generation
// of a residual, the sequence number, and whether a call has failed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/comm.h"
#include "device/device_fills.h"
#include "device/devices.h"
#include "device/memory.h"
#include "exec/stream_watch.h"
#include "plan/plan.h"
#include "steps/device_compute.h"
#include "steps/long_lists.h"

namespace onebit {

// Serves one communicator and its calling thread. The device must be current, except in functions
// that say otherwise.
class StreamCompute {
 public:
  static Result<std::unique_ptr<StreamCompute>> Create(const Devices& devices, int device,
                                                       const HostMap& hosts);
  const Devices& devices() const { return devices_; }
  int device() const { return device_; }

  // Allocates for the steps of a plan whose tensor has so many elements.
  size_t SumBytesFor(const Plan& plan, size_t tensor_elements) const;
  size_t sum_bytes() const { return tile_sums_.size(); }
  Status ReserveSums(size_t bytes);
  // Bytes that batches of so many compressed calls need for lists of launches, with so many
  // CallMessages of all calls together.
  static size_t ListBytesFor(size_t calls, size_t messages);
  LongLists& lists() { return lists_; }

  // Begins a batch of calls on `stream`, behind the previous batch: all share their working memory.
  // During a capture the caller must order them.
  Status Begin(onebitStream_t stream);
  bool is_capturing() const { return is_capturing_; }
  // Begins a compressed call. After a failure no call commits or writes residuals, not even calls
  // enqueued before the failure was known: other ranks may have committed the failed call, and a
  // rebind rolls forward to it.
  Status BeginCall(const FaultWords& faults);
  // Ends a compressed call: commits it, or fills its output with NaN.
  void EndCall(const Call& call, const FaultWords& faults, bool counts_sequence);
  // Ends the batch, behind the ends of its calls.
  Status End();
  // Prevents work enqueued later on `stream` from committing residuals. Safe to call even if Begin
  // never ran or End already returned. Does nothing if the stream is being captured. The device
  // need not be current.
  void Halt(onebitStream_t stream);

  onebitStream_t stream() const { return stream_; }
  // Enqueues the computing steps of the batch.
  DeviceCompute& steps() { return steps_; }
  // The sequence number, on the device, of the next compressed call that is counted like one with
  // this key: among all collectives, or among the sends to a peer or the receives from it.
  uint64_t* SequenceOf(const PlanKey& key) const {
    if (!key.is_pairs()) return &words()->sequence;
    auto* const pairs = reinterpret_cast<uint64_t*>(words() + 1);
    return pairs + 2 * size_t{key.root} + (key.is_receive ? 1 : 0);
  }
  // Pinned memory in which kernels report a failure.
  kernels::cuda::MessageFailure* failure() const { return &report()->failure; }
  // Completed calls that met a NaN or infinity, graph replays included. Thread-safe.
  uint64_t nonfinite_calls() const;
  // Pinned memory for StreamProgress.
  uint32_t* ended_calls() const { return &report()->ended_calls; }

  // Starts a thread that takes `comm` out of use when the device fails: streams then stop without
  // telling. Nothing waits for this thread, so the driver may hold it up. EndWatch ends it.
  Status WatchDevice(Comm& comm);
  void EndWatch() { watch_.reset(); }

  // True if everything enqueued has completed. Enters the device itself. Thread-safe.
  Result<bool> IsIdle() const;
  // Waits for that. Fails if it takes longer than a call of `comm` may.
  Status AwaitAll(Comm& comm) const;
  // Waits for that, but at most `limit`. Also true if the device is broken.
  bool IsIdleWithin(std::chrono::milliseconds limit) const;

  // All memory, for those who must not free it now.
  struct Blocks {
    Memory words, host_sizes, report;
    GrowableBuffer tile_sums;
    LongLists::Blocks lists;
  };
  Blocks TakeMemory();
  // Leaks all memory at the end, because work that never ends may be using it.
  void LeakMemory();

 private:
  // State of the communicator in device memory. The numbers of pairs follow, two for each peer.
  struct Words {
    uint64_t sequence = 0;
    uint32_t halted = 0;  // kHalted once a call has failed
    uint32_t unused = 0;
  };
  // Pinned memory in which kernels report about calls.
  struct KernelReport {
    kernels::cuda::MessageFailure failure;
    uint64_t nonfinite_calls = 0;
    uint32_t ended_calls = 0;
  };

  StreamCompute(const Devices& devices, int device)
      : devices_(devices), device_(device), lists_(devices, device), steps_(devices, lists_) {}
  Words* words() const { return reinterpret_cast<Words*>(words_.data()); }
  const float* host_sizes() const { return reinterpret_cast<const float*>(host_sizes_.data()); }
  KernelReport* report() const { return reinterpret_cast<KernelReport*>(report_.data()); }

  const Devices& devices_;
  const int device_;
  std::shared_ptr<DeviceFills> fills_;
  Memory words_;              // device: Words
  Memory host_sizes_;         // device: the ranks on each host
  Memory report_;             // pinned: KernelReport
  GrowableBuffer tile_sums_;  // device
  LongLists lists_;
  DeviceCompute steps_;
  DeviceEvent last_;  // recorded after the latest work
  std::atomic<bool> has_last_{false};
  onebitStream_t stream_ = nullptr;  // of the batch in progress
  bool is_capturing_ = false;
  std::unique_ptr<StreamWatch> watch_;  // last: destroyed first, because it calls back
};

}  // namespace onebit
