// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/devices.h"

#include "device/device_loader.h"

namespace onebit {

std::string Describe(const MemoryLocation& location) {
  return location.is_device() ? Format("memory of CUDA device {}", location.device) : "host memory";
}

const Devices* Devices::Find(FoldersFunction folders) { return DeviceLoader::Find(folders); }

const Devices* Devices::FindFor(const void* buffer, FoldersFunction folders) {
  return DeviceLoader::FindFor(buffer, folders);
}

Status Devices::Obstacle() { return DeviceLoader::Obstacle(); }

Status Devices::Check(onebitResult_t result, const char* what) const {
  if (result == onebitSuccess) return OkStatus();
  const char* const text = functions_->LastError();
  return Error(static_cast<Code>(result), "failed to {}: {}", what,
               text == nullptr || *text == '\0' ? "no reason given" : text);
}

Result<MemoryLocation> Devices::LocationOf(const void* pointer) const {
  DevicePointerInfo info;
  ONEBIT_TRY(Check(functions_->InspectPointer(pointer, &info), "query the memory of a buffer"));
  if (info.kind == MemoryKind::kHost) return MemoryLocation{};
  return MemoryLocation{info.kind, info.device};
}

Result<int> Devices::Current() const {
  int device = 0;
  ONEBIT_TRY(Check(functions_->CurrentDevice(&device), "find the current device"));
  return device;
}

Result<bool> Devices::IsDone(void* event) const {
  int is_done = 0;
  ONEBIT_TRY(Check(functions_->QueryEvent(event, &is_done), "query an event"));
  return is_done != 0;
}

Result<bool> Devices::IsCapturing(onebitStream_t stream) const {
  int is_capturing = 0;
  ONEBIT_TRY(Check(functions_->IsCapturing(stream, &is_capturing), "query a stream"));
  return is_capturing != 0;
}

Result<DeviceScope> DeviceScope::Enter(const Devices& devices, int device) {
  uintptr_t token = 0;
  ONEBIT_TRY(devices.Check(devices.functions().Enter(device, &token), "enter a device"));
  return DeviceScope(devices, token);
}

Result<DeviceStream> DeviceStream::Create(const Devices& devices) {
  DeviceStream stream;
  ONEBIT_TRY(devices.Check(devices.functions().CreateStream(&stream.stream_), "create a stream"));
  stream.devices_ = &devices;
  return stream;
}

Result<DeviceEvent> DeviceEvent::Create(const Devices& devices) {
  DeviceEvent event;
  ONEBIT_TRY(devices.Check(devices.functions().CreateEvent(&event.event_), "create an event"));
  event.devices_ = &devices;
  return event;
}

}  // namespace onebit
