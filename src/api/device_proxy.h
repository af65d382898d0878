// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs device-memory calls over a host transport. A proxy thread executes each call; the CUDA
// stream blocks on a word in pinned memory, the caller returns at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "api/host_stream_calls.h"
#include "device/devices.h"
#include "device/host_stream.h"
#include "device/memory.h"

namespace onebit {

// Serves one communicator. A call records an event on its stream and makes the stream wait for a
// ticket in pinned memory. The thread runs the calls in order, each after its event has completed,
// and then releases the stream, whether the call has succeeded or not. Used by one thread at a
// time, like its communicator.
class DeviceProxy {
 public:
  static Result<std::unique_ptr<DeviceProxy>> Create(const Devices& devices, int device);

  int device() const { return device_; }
  // Allocates memory for calls that are about to be queued (Engine::PrepareForDevice).
  Status Prepare(onebitComm_t comm, onebitStream_t stream,
                 std::span<const CallRequest> requests) const;
  HostStream& thread() { return *thread_; }

  // Queues `body`, which takes the call and returns a Status, behind the work on the call's stream
  // and behind earlier calls of the communicator. An error of `body` takes the communicator out of
  // use. A queued body always runs, so that it can free what it owns; a failed communicator then
  // refuses the call. *is_queued, unless null, tells whether it was queued, which may be true in
  // spite of an error.
  template <typename Body>
  Status Enqueue(const ApiCall& call, Body body, bool* is_queued = nullptr) {
    ONEBIT_TRY(CheckCanWait(call.comm, call.request.stream));
    ONEBIT_ASSIGN_OR_RETURN(const uint64_t ticket, BeginPending(call, thread_.get()));
    bool is_begun = false;
    Status status = EnqueueBegun(
        call.comm, call.request.stream,
        [call, ticket, body]() -> Status {
          const PendingCall pending(call);  // ends before the stream is released
          AwaitTicket(call.comm, ticket);
          return body(call);
        },
        &is_begun);
    if (!is_begun) CancelPending(call);
    if (is_queued != nullptr) *is_queued = is_begun;
    return status;
  }

  // The same for a call that has begun already; `body` waits for its tickets and ends it. Its
  // status reaches only the communicator.
  template <typename Body>
  Status EnqueueBegun(onebitComm_t comm, onebitStream_t stream, Body body, bool* is_queued) {
    ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
    const uint32_t ticket = next_ticket_;
    ONEBIT_TRY(Mark(comm, stream, ticket));
    ONEBIT_TRY(thread_->Enqueue(HostStream::AfterFailure::kRun, [this, comm, ticket, body]() {
      const StreamRelease release(*this, ticket);
      try {
        const Status status = Run(comm, ticket, body);
        return status.ok() ? status : comm->comm->Fail(status);
      } catch (const std::bad_alloc&) {
        return comm->comm->FailWithoutMemory();
      }
    }));
    ++next_ticket_;
    *is_queued = true;
    return devices_.WaitValue(stream, word(), ticket);
  }

 private:
  // Limits the calls whose events have not completed.
  static constexpr uint32_t kMostCalls = 256;

  // Releases the stream at the end of the scope.
  class StreamRelease {
   public:
    StreamRelease(DeviceProxy& proxy, uint32_t ticket) : proxy_(proxy), ticket_(ticket) {}
    ~StreamRelease() { proxy_.Release(ticket_); }
    StreamRelease(const StreamRelease&) = delete;
    StreamRelease& operator=(const StreamRelease&) = delete;

   private:
    DeviceProxy& proxy_;
    const uint32_t ticket_;
  };

  DeviceProxy(const Devices& devices, int device) : devices_(devices), device_(device) {}

  // Fails for a stream that is being captured.
  Status CheckCanWait(onebitComm_t comm, onebitStream_t stream) const;
  uint32_t* word() const { return reinterpret_cast<uint32_t*>(word_.data()); }
  Status Mark(onebitComm_t comm, onebitStream_t stream, uint32_t ticket);
  Status AwaitStream(onebitComm_t comm, uint32_t ticket);
  void Release(uint32_t ticket);

  template <typename Body>
  Status Run(onebitComm_t comm, uint32_t ticket, Body& body) {
    // If the wait fails so does the communicator, which then refuses the call.
    Status reached = AwaitStream(comm, ticket);
    const auto scope = DeviceScope::Enter(devices_, device_);
    if (reached.ok()) reached = scope.status();
    if (!reached.ok()) reached = comm->comm->Fail(std::move(reached));
    Status status = body();
    return reached.ok() ? status : reached;
  }

  const Devices& devices_;
  const int device_;
  std::vector<DeviceEvent> events_;  // ring, by ticket
  Memory word_;                      // pinned: the newest ticket whose stream is released
  uint32_t next_ticket_ = 1;
  std::unique_ptr<HostStream> thread_;  // last, so that it ends first
};

// Returns the communicator's proxy on a device, and creates it for the first call there.
Result<DeviceProxy*> ProxyOf(onebitComm_t comm, const MemoryLocation& location);

}  // namespace onebit
