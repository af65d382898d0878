// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// How calls on the memory of a device are made over a transport of the host: the caller's stream
// waits, the caller does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/stream.h"
#include "device/devices.h"
#include "device/host_stream.h"
#include "device/memory.h"

namespace onebit {

// Of one communicator. A call marks its place on its stream and makes the stream wait for a word in
// pinned memory. A thread makes the calls in their order, each when its stream has come to its
// place, and then lets the stream go on, whatever has become of the call. Used by one thread at a
// time, like its communicator.
class DeviceLane {
 public:
  static Result<std::unique_ptr<DeviceLane>> Create(const Devices& devices, int device);

  int device() const { return device_; }
  HostStream& thread() { return *thread_; }

  // Queues `body`, which returns a Status, for its place on the target's stream. An error of it
  // puts the communicator out of use. is_queued, if not null, tells whether `body` will run: an
  // error may come after that, too.
  template <typename Body>
  Status Enqueue(const CallTarget& target, Body body, bool* is_queued = nullptr) {
    ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
    const uint32_t ticket = next_ticket_;
    ONEBIT_TRY(Mark(target, ticket));
    ONEBIT_TRY(BeginPending(target, thread_.get()));
    Status status =
        thread_->Enqueue(HostStream::AfterFailure::kRun, [this, target, ticket, body]() -> Status {
          const Turn turn(*this, ticket);
          const PendingCall call(target);  // ends before the stream goes on
          return Fail(target, Run(target, ticket, body));
        });
    if (!status.ok()) {
      EndPending(target);
      return status;
    }
    ++next_ticket_;
    if (is_queued != nullptr) *is_queued = true;
    return devices_.WaitValue(target.stream, word(), ticket);
  }

 private:
  // Calls of which the stream has not come to its place yet, at most.
  static constexpr uint32_t kMostCalls = 256;

  // Lets the stream go on at the end of the scope.
  class Turn {
   public:
    Turn(DeviceLane& lane, uint32_t ticket) : lane_(lane), ticket_(ticket) {}
    ~Turn() { lane_.Release(ticket_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DeviceLane& lane_;
    const uint32_t ticket_;
  };

  DeviceLane(const Devices& devices, int device) : devices_(devices), device_(device) {}

  uint32_t* word() const { return reinterpret_cast<uint32_t*>(word_.data()); }
  Status Mark(const CallTarget& target, uint32_t ticket);
  Status AwaitPlace(const CallTarget& target, uint32_t ticket);
  void Release(uint32_t ticket);
  static Status Fail(const CallTarget& target, Status status);

  template <typename Body>
  Status Run(const CallTarget& target, uint32_t ticket, Body& body) {
    ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
    ONEBIT_TRY(AwaitPlace(target, ticket));
    return body();
  }

  const Devices& devices_;
  const int device_;
  std::vector<DeviceEvent> events_;  // ring, by ticket
  Memory word_;                      // pinned: the last ticket whose stream may go on
  uint32_t next_ticket_ = 1;
  std::unique_ptr<HostStream> thread_;  // last: it ends first
};

// The lane of a communicator on a device, made at the first call there.
Result<DeviceLane*> LaneOf(onebitComm_t comm, const MemoryPlace& place);

}  // namespace onebit
