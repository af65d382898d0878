// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How calls on the memory of a device are made over a transport of the host: the caller's stream
// waits, the caller does not.
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

// Of one communicator. A call marks its place on its stream and makes the stream wait for a word in
// pinned memory. A thread makes the calls in their order, each when its stream has come to its
// place, and then lets the stream go on, whatever has become of the call. Used by one thread at a
// time, like its communicator.
class DeviceProxy {
 public:
  static Result<std::unique_ptr<DeviceProxy>> Create(const Devices& devices, int device);

  int device() const { return device_; }
  // Takes the memory for calls that are to be queued (Engine::PrepareForDevice).
  Status Prepare(onebitComm_t comm, onebitStream_t stream,
                 std::span<const Engine::Request> requests) const;
  HostStream& thread() { return *thread_; }

  // Queues `body`, which returns a Status, for its place on the target's stream and its turn on the
  // communicator. An error of it puts the communicator out of use. It is called in any case, once
  // it is queued: by a communicator that has failed it is refused, and what it holds is let go.
  // is_queued, if not null, tells whether it is: an error may come after that, too.
  template <typename Body>
  Status Enqueue(const CallTarget& target, Body body, bool* is_queued = nullptr) {
    ONEBIT_TRY(CheckCanWait(target.comm, target.stream));
    ONEBIT_ASSIGN_OR_RETURN(const uint64_t turn, BeginPending(target, thread_.get()));
    bool is_begun = false;
    Status status = EnqueueBegun(
        target.comm, target.stream,
        [target, turn, body]() -> Status {
          const PendingCall call(target);  // ends before the stream goes on
          AwaitTicket(target.comm, turn);
          return body();
        },
        &is_begun);
    if (!is_begun) CancelPending(target);
    if (is_queued != nullptr) *is_queued = is_begun;
    return status;
  }

  // Likewise for a call that has begun, and whose body waits for its tickets and ends it. Nobody
  // waits for what it returns: its communicator has to tell.
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
  // Calls of which the stream has not come to its place yet, at most.
  static constexpr uint32_t kMostCalls = 256;

  // Lets the stream go on at the end of the scope.
  class StreamRelease {
   public:
    StreamRelease(DeviceProxy& proxy, uint32_t ticket) : lane_(proxy), ticket_(ticket) {}
    ~StreamRelease() { lane_.Release(ticket_); }
    StreamRelease(const StreamRelease&) = delete;
    StreamRelease& operator=(const StreamRelease&) = delete;

   private:
    DeviceProxy& lane_;
    const uint32_t ticket_;
  };

  DeviceProxy(const Devices& devices, int device) : devices_(devices), device_(device) {}

  // A stream that is being captured cannot.
  Status CheckCanWait(onebitComm_t comm, onebitStream_t stream) const;
  uint32_t* word() const { return reinterpret_cast<uint32_t*>(word_.data()); }
  Status Mark(onebitComm_t comm, onebitStream_t stream, uint32_t ticket);
  Status AwaitStream(onebitComm_t comm, uint32_t ticket);
  void Release(uint32_t ticket);

  template <typename Body>
  Status Run(onebitComm_t comm, uint32_t ticket, Body& body) {
    // Without its place the communicator fails, and refuses the call.
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
  Memory word_;                      // pinned: the last ticket whose stream may go on
  uint32_t next_ticket_ = 1;
  std::unique_ptr<HostStream> thread_;  // last: it ends first
};

// The proxy of a communicator on a device, made at the first call there.
Result<DeviceProxy*> ProxyOf(onebitComm_t comm, const MemoryLocation& location);

}  // namespace onebit
