// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#include <cstring>

#include "device/device_fills.h"

namespace onebit {
namespace {

// Copies have at most some gigabytes; only a device that does not answer takes longer.
constexpr uint64_t kDeviceTimeoutMs = 60'000;

// Runs `body` with a stream of its own on the device, behind the fills of memory, and waits for it.
template <typename Body>
Status OnOwnStream(const Devices& devices, int device, Body body) {
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  ONEBIT_ASSIGN_OR_RETURN(const DeviceStream stream, DeviceStream::Create(devices));
  ONEBIT_TRY(DeviceFills::Order(device, stream.get()));
  ONEBIT_TRY(body(stream.get()));
  return devices.Synchronize(stream.get(), kDeviceTimeoutMs);
}

Status Explain(Status status, const char* purpose, size_t bytes) {
  if (status.ok()) return status;
  return Error(status.code(), "no memory for {} of {} bytes: {}", purpose, bytes, status.text());
}

}  // namespace

Result<Memory> Memory::Create(const MemoryLocation& location, const Devices* devices, size_t bytes,
                              const char* purpose) {
  Memory memory;
  if (bytes == 0) return memory;
  if (!location.is_device()) {
    ONEBIT_ASSIGN_OR_RETURN(memory.host_, AlignedBuffer::Create(bytes, purpose));
    memory.data_ = memory.host_.data();
    memory.bytes_ = bytes;
    return memory;
  }
  // Creates the stream first: without one the memory could not be filled and would be freed, which
  // waits for all work of the device.
  ONEBIT_TRY(OnOwnStream(*devices, location.device, [&](onebitStream_t stream) -> Status {
    ONEBIT_ASSIGN_OR_RETURN(memory, Allocate(location.device, devices, bytes, purpose));
    return devices->Fill(memory.data_, 0, bytes, stream);
  }));
  return memory;
}

Result<Memory> Memory::CreateOrdered(const MemoryLocation& location, const Devices* devices,
                                     size_t bytes, const char* purpose) {
  if (bytes == 0 || !location.is_device()) return Create(location, devices, bytes, purpose);
  const std::shared_ptr<DeviceFills> fills = DeviceFills::Find(location.device);
  if (fills == nullptr) return Create(location, devices, bytes, purpose);
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(*devices, location.device));
  ONEBIT_ASSIGN_OR_RETURN(Memory memory, Allocate(location.device, devices, bytes, purpose));
  ONEBIT_TRY(fills->Zero(memory.data_, bytes));
  return memory;
}

// The device must be current.
Result<Memory> Memory::Allocate(int device, const Devices* devices, size_t bytes,
                                const char* purpose) {
  void* data = nullptr;
  ONEBIT_TRY(Explain(devices->Check(devices->functions().Allocate(bytes, &data), "allocate"),
                     purpose, bytes));
  Memory memory;
  memory.devices_ = devices;
  memory.device_ = device;
  memory.location_ = {MemoryKind::kDevice, device};
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

Result<Memory> Memory::CreatePinned(const Devices& devices, int device, size_t bytes,
                                    const char* purpose) {
  Memory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  ONEBIT_ASSIGN_OR_RETURN(const DeviceScope scope, DeviceScope::Enter(devices, device));
  ONEBIT_TRY(
      Explain(devices.Check(devices.functions().AllocatePinned(bytes, &data), "pin host memory"),
              purpose, bytes));
  memory.devices_ = &devices;
  memory.device_ = device;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  if (devices_ == nullptr) return;
  const auto scope = DeviceScope::Enter(*devices_, device_);
  if (!scope.ok()) return;  // the driver is gone, and all memory with it
  if (location_.is_device()) {
    devices_->functions().Free(data_);
  } else {
    devices_->functions().FreePinned(data_);
  }
}

Status Memory::Clear() {
  if (bytes_ == 0) return OkStatus();
  if (!location_.is_device()) {
    std::memset(data_, 0, bytes_);
    return OkStatus();
  }
  return OnOwnStream(*devices_, location_.device, [this](onebitStream_t stream) {
    return devices_->Fill(data_, 0, bytes_, stream);
  });
}

Result<Memory> Memory::CopyTo(const MemoryLocation& location, const Devices* devices,
                              const char* purpose) const {
  ONEBIT_ASSIGN_OR_RETURN(Memory copy, Create(location, devices, bytes_, purpose));
  if (bytes_ == 0) return copy;
  if (!location.is_device() && !location_.is_device()) {
    std::memcpy(copy.data_, data_, bytes_);
    return copy;
  }
  const int device = location.is_device() ? location.device : location_.device;
  ONEBIT_TRY(CopyNow(*devices, device, copy.data_, data_, bytes_));
  return copy;
}

Status CopyNow(const Devices& devices, int device, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return OkStatus();
  return OnOwnStream(devices, device,
                     [&](onebitStream_t stream) { return devices.Copy(to, from, bytes, stream); });
}

}  // namespace onebit
