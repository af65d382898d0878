// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/device_lane.h"

#include "api/place.h"
#include "device/patience.h"

namespace onebit {

Result<std::unique_ptr<DeviceLane>> DeviceLane::Create(const Devices& devices, int device) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<DeviceLane> lane(new DeviceLane(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(lane->word_,
                          Memory::CreatePinned(devices, device, sizeof(uint32_t), "a ticket"));
  // A device that cannot wait for the host says so now, when nothing depends on it yet.
  ONEBIT_ASSIGN_OR_RETURN(const DeviceStream trial, DeviceStream::Create(devices));
  ONEBIT_TRY(devices.WaitValue(trial.get(), lane->word(), 0));
  for (uint32_t i = 0; i < kMostCalls; ++i) {
    ONEBIT_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create(devices));
    lane->events_.push_back(std::move(event));
  }
  ONEBIT_ASSIGN_OR_RETURN(lane->thread_, HostStream::Create());
  return lane;
}

Status DeviceLane::Prepare(onebitComm_t comm, onebitStream_t stream,
                           std::span<const Engine::Request> requests) const {
  ONEBIT_TRY(CheckCanWait(comm, stream));
  return comm->engine.PrepareForDevice(requests);
}

Status DeviceLane::CheckCanWait(onebitComm_t comm, onebitStream_t stream) const {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices_.IsCapturing(stream));
  if (!is_capturing) return OkStatus();
  return Error(Code::kInvalidUsage,
               "stream is being captured, but transport {} moves host memory, which a graph "
               "cannot replay: use transport nccl",
               comm->comm->transport_name());
}

// The event of a ticket is free once the call that had it before is over.
Status DeviceLane::Mark(onebitComm_t comm, onebitStream_t stream, uint32_t ticket) {
  ONEBIT_TRY(CheckCanWait(comm, stream));
  const auto has_room = [&] {
    const uint32_t released = std::atomic_ref(*word()).load(std::memory_order_acquire);
    return ticket - released <= kMostCalls;
  };
  for (Patience patience; !has_room();) {
    ONEBIT_TRY(comm->comm->FindFailure());
    patience.Pause();
  }
  return devices_.Record(events_[ticket % kMostCalls].get(), stream);
}

// However long the work before it takes: a rank that is late is only late.
Status DeviceLane::AwaitPlace(onebitComm_t comm, uint32_t ticket) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  for (Patience patience;;) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_there,
                            devices_.IsDone(events_[ticket % kMostCalls].get()));
    if (is_there) return OkStatus();
    ONEBIT_TRY(comm->comm->FindFailure());
    patience.Pause();
  }
}

void DeviceLane::Release(uint32_t ticket) {
  std::atomic_ref(*word()).store(ticket, std::memory_order_release);
}

Result<DeviceLane*> LaneOf(onebitComm_t comm, const MemoryPlace& place) {
  if (comm->lane == nullptr) {
    ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));  // they use what changes now
    ONEBIT_ASSIGN_OR_RETURN(const Devices* const devices, GetDevices());
    ONEBIT_TRY(comm->engine.UseDevice(*devices, place.device));
    ONEBIT_ASSIGN_OR_RETURN(comm->lane, DeviceLane::Create(*devices, place.device));
  }
  if (comm->lane->device() == place.device) return comm->lane.get();
  return Error(Code::kInvalidUsage,
               "rank {}: the buffers are {}, but this communicator works on device {}: one "
               "communicator has one device",
               comm->comm->rank(), Describe(place), comm->lane->device());
}

}  // namespace onebit
