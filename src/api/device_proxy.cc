// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/device_proxy.h"

#include "api/memory_location.h"
#include "base/backoff.h"

namespace onebit {

Result<std::unique_ptr<DeviceProxy>> DeviceProxy::Create(const Devices& devices, int device) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  std::unique_ptr<DeviceProxy> proxy(new DeviceProxy(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(proxy->word_,
                          Memory::CreatePinned(devices, device, sizeof(uint32_t), "a ticket"));
  // Fails now, before anything depends on it, if the device cannot wait for the host.
  ONEBIT_ASSIGN_OR_RETURN(const DeviceStream trial, DeviceStream::Create(devices));
  ONEBIT_TRY(devices.WaitValue(trial.get(), proxy->word(), 0));
  for (uint32_t i = 0; i < kMostCalls; ++i) {
    ONEBIT_ASSIGN_OR_RETURN(DeviceEvent event, DeviceEvent::Create(devices));
    proxy->events_.push_back(std::move(event));
  }
  ONEBIT_ASSIGN_OR_RETURN(proxy->thread_, HostStream::Create());
  return proxy;
}

Status DeviceProxy::Prepare(onebitComm_t comm, onebitStream_t stream,
                            std::span<const CallRequest> requests) const {
  ONEBIT_TRY(CheckCanWait(comm, stream));
  return comm->engine.PrepareForDevice(requests);
}

Status DeviceProxy::CheckCanWait(onebitComm_t comm, onebitStream_t stream) const {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  ONEBIT_ASSIGN_OR_RETURN(const bool is_capturing, devices_.IsCapturing(stream));
  if (!is_capturing) return OkStatus();
  return Error(Code::kInvalidUsage,
               "stream is being captured, but transport {} moves host memory, which a graph "
               "cannot replay: use transport nccl",
               comm->comm->transport_name());
}

// The event of a ticket is free again once its previous call is over.
Status DeviceProxy::Mark(onebitComm_t comm, onebitStream_t stream, uint32_t ticket) {
  ONEBIT_TRY(CheckCanWait(comm, stream));
  const auto has_room = [&] {
    const uint32_t released = std::atomic_ref(*word()).load(std::memory_order_acquire);
    return ticket - released <= kMostCalls;
  };
  for (Backoff backoff; !has_room(); backoff.Pause()) ONEBIT_TRY(comm->comm->FindFailure());
  return devices_.Record(events_[ticket % kMostCalls].get(), stream);
}

// Has no timeout: work that was queued before the call may legitimately be slow.
Status DeviceProxy::AwaitStream(onebitComm_t comm, uint32_t ticket) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices_, device_));
  for (Backoff backoff;; backoff.Pause()) {
    ONEBIT_ASSIGN_OR_RETURN(const bool is_there,
                            devices_.IsDone(events_[ticket % kMostCalls].get()));
    if (is_there) return OkStatus();
    ONEBIT_TRY(comm->comm->FindFailure());
  }
}

void DeviceProxy::Release(uint32_t ticket) {
  std::atomic_ref(*word()).store(ticket, std::memory_order_release);
}

Result<DeviceProxy*> ProxyOf(onebitComm_t comm, const MemoryLocation& location) {
  if (comm->proxy == nullptr) {
    ONEBIT_TRY(CheckNonePending(comm->pending, "communicator"));  // they use what changes now
    ONEBIT_ASSIGN_OR_RETURN(const Devices* const devices, GetDevices());
    ONEBIT_TRY(comm->engine.UseDevice(*devices, location.device));
    ONEBIT_ASSIGN_OR_RETURN(comm->proxy, DeviceProxy::Create(*devices, location.device));
  }
  if (comm->proxy->device() == location.device) return comm->proxy.get();
  return Error(Code::kInvalidUsage,
               "rank {}: the buffers are {}, but this communicator works on device {}: one "
               "communicator has one device",
               comm->comm->rank(), Describe(location), comm->proxy->device());
}

}  // namespace onebit
