// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs plans on a CUDA stream, over a transport whose messages are in its order: everything is
// enqueued and nothing waited for, so that it can be captured into a graph.
//
// What the host executor knows as it goes lies in device memory here: which generation of a
// residual is current, the number of the call, and a word per call, its verdict, that says whether
// everything so far is finite and every message was the expected one. A replayed graph advances
// them by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/device_compute.h"
#include "collectives/stream_calls.h"
#include "collectives/stream_order.h"
#include "comm/comm.h"
#include "device/devices.h"
#include "device/memory.h"

namespace onebit {

// Owned by the engine of a communicator, used by the thread in the call.
class StreamExecutor {
 public:
  static Result<std::unique_ptr<StreamExecutor>> Create(Comm& comm, const Devices& devices,
                                                        int device);
  const Devices& devices() const { return devices_; }
  int device() const { return device_; }

  // Makes room for calls of these plans in one batch. Allocates only if there is not enough, and
  // fails if that is so while `stream` is being captured.
  Status Reserve(std::span<const Plan* const> plans, std::optional<onebitStream_t> stream);

  // A batch of calls on one stream: Begin, then for each exchange from 1 on Compute, PostMessages
  // between the endpoint's BeginGroup and EndGroup, and Check; then Compute and End. After an error
  // of one of them Drop, and nothing more. `calls` have no packets yet and outlive End; the device
  // is the current one.
  Status Begin(std::span<Call> calls, onebitStream_t stream);
  Status Compute(uint32_t phase);
  Status PrepareMessages(uint32_t exchange);
  Status PostMessages(uint32_t exchange);
  Status Check(uint32_t exchange);
  Status End();
  // What is behind them on `stream`, theirs, changes no residual; also where Begin was not reached,
  // or End was over. Nothing where the stream is being captured.
  void Drop(onebitStream_t stream);

  // Calls with values that are not finite, replays included. From any thread.
  uint64_t nonfinite_calls() const;
  // How long a call has been under way without an end of any, from its Begin on; for another
  // thread.
  Result<StreamCalls::Clock::duration> Age();
  // What a kernel found wrong with a message, as an error of the call it belongs to; ok if nothing.
  // From any thread.
  Status FindFailure() const;
  // Whether all that was enqueued is done.
  Result<bool> IsIdle() const;
  // Waits for that. An error if it takes too long.
  Status AwaitAll();
  // Whether it comes to that in time; also if the device is broken.
  bool IsIdleWithin(std::chrono::milliseconds limit) const;
  // Whether a graph holds calls, of whose replays nobody here knows.
  bool has_captured() const { return has_captured_; }
  // Gives all memory back, and `more` of the device, in a thread of its own: that waits for
  // replays. Told when it is done. Without a thread the future is not valid, and nothing has
  // changed.
  std::future<void> FreeBeside(GrowableBuffer* more);
  // Gives no memory back at the end: something may be using it that does not end.
  void LeaveMemory();

 private:
  // In device memory, of the communicator.
  struct Words {
    uint64_t sequence = 0;  // of the next compressed call
    uint32_t halted = 0;    // kHalted once a call has failed
    uint32_t unused = 0;
  };
  // In pinned memory: what kernels tell of calls.
  struct Told {
    kernels::cuda::MessageFailure failure;
    uint64_t nonfinite_calls = 0;
  };
  // Where a call's part of the working memory is.
  struct Space {
    uint32_t* verdict = nullptr;            // the checksums follow behind it
    kernels::Checksum* sent = nullptr;      // by packet
    kernels::Checksum* received = nullptr;  // by step
    std::byte* bare_headers = nullptr;      // of messages without payload, by step
    size_t sum_bytes = 0;                   // of all these
  };
  StreamExecutor(Comm& comm, const Devices& devices, int device)
      : comm_(comm), devices_(devices), device_(device) {}

  static size_t SpaceFor(const Plan& plan);
  Space PlaceCall(Call* call, std::byte* memory) const;
  KernelQueue queue() const;
  kernels::cuda::HeaderTemplate TemplateOf(size_t call, const Step& message) const;
  // Where the header of a message lies; its payload follows, if it has one.
  std::byte* HeaderOf(size_t call, uint32_t step) const;
  template <typename Params, typename Add>
  Status LaunchMessages(size_t call, const std::vector<uint32_t>& messages,
                        kernels::cuda::Kernel kernel, Params params, const Add& add);
  Status SealCall(size_t call, uint32_t exchange);
  Status PostNative(const Call& call, const std::vector<uint32_t>& steps);
  Status CheckCall(size_t call, uint32_t exchange);
  Status EndCall(size_t call);

  Comm& comm_;
  const Devices& devices_;
  const int device_;
  Words* words() const { return reinterpret_cast<Words*>(words_.data()); }
  Told* told() const { return reinterpret_cast<Told*>(told_.data()); }

  Memory words_;              // of the device: Words
  GrowableBuffer tile_sums_;  // of the device
  GrowableBuffer space_;      // of the device: verdicts, checksums, headers and packets of a batch
  Memory told_;               // pinned: Told
  DeviceEvent last_;          // behind what was enqueued last
  bool has_last_ = false;
  bool has_captured_ = false;
  StreamCalls under_way_;

  // Of the batch in progress.
  std::span<Call> calls_;
  onebitStream_t stream_ = nullptr;
  bool is_capturing_ = false;
  std::vector<Space> spaces_;        // by call
  std::vector<StreamOrder> orders_;  // by call
};

}  // namespace onebit
