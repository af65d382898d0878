// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "api/memory_location.h"

#include "api/host_stream_calls.h"
#include "transport/process_settings.h"

namespace onebit {
namespace {

const Devices* FindDevicesFor(const void* buffer) {
  return Devices::FindFor(buffer, ProcessPluginFolders);
}

}  // namespace

const Devices* FindDevices() { return Devices::Find(ProcessPluginFolders); }

Result<const Devices*> GetDevices() {
  const Devices* const devices = FindDevices();
  if (devices == nullptr) return Devices::Obstacle();
  return devices;
}

Result<MemoryLocation> LocationOfCall(onebitStream_t stream, const void* sendbuff,
                                      const void* recvbuff) {
  const bool is_host_stream = stream != nullptr && IsHostStream(stream);
  const bool may_be_cuda_stream = stream != nullptr && !is_host_stream;
  const Devices* devices = may_be_cuda_stream ? FindDevices() : FindDevicesFor(sendbuff);
  if (devices == nullptr) devices = FindDevicesFor(recvbuff);
  if (devices == nullptr) {
    if (stream == nullptr || is_host_stream) return MemoryLocation{};
    return Error(Code::kInvalidArgument,
                 "stream was not made by onebitStreamCreate, or was destroyed, and cannot be a "
                 "CUDA stream: {}",
                 Devices::Obstacle().text());
  }
  if (sendbuff == nullptr && recvbuff == nullptr) {
    if (stream == nullptr || is_host_stream) return MemoryLocation{};
    ONEBIT_ASSIGN_OR_RETURN(const int device, devices->Current());
    return MemoryLocation{MemoryKind::kDevice, device};
  }
  const void* const first = recvbuff != nullptr ? recvbuff : sendbuff;
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, devices->LocationOf(first));
  if (sendbuff != nullptr && sendbuff != first) {
    ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation other, devices->LocationOf(sendbuff));
    if (other != location) {
      return Error(Code::kInvalidArgument,
                   "sendbuff is {}, but recvbuff is {}: use the same memory for both",
                   Describe(other), Describe(location));
    }
  }
  if (is_host_stream && location.is_device()) {
    return Error(Code::kInvalidArgument,
                 "the buffers are {}, but stream was made by onebitStreamCreate and works on host "
                 "memory: pass a CUDA stream",
                 Describe(location));
  }
  if (!is_host_stream && stream != nullptr && !location.is_device()) {
    return Error(Code::kInvalidArgument,
                 "the buffers are host memory, but stream was not made by onebitStreamCreate, or "
                 "was destroyed: pass NULL, a stream of onebitStreamCreate, or buffers in memory "
                 "of the CUDA device");
  }
  return location;
}

Status CheckHostMemory(const void* buffer, const char* what) {
  const Devices* const devices = FindDevicesFor(buffer);
  if (devices == nullptr) return OkStatus();
  ONEBIT_ASSIGN_OR_RETURN(const MemoryLocation location, devices->LocationOf(buffer));
  if (!location.is_device()) return OkStatus();
  return Error(Code::kInvalidArgument, "{} works on host memory, but the buffer is {}", what,
               Describe(location));
}

Result<MemoryLocation> LocationOfResiduals(int32_t memory, int32_t device) {
  if (memory == ONEBIT_UNDEF_INT || memory == onebitMemoryHost) {
    if (device == ONEBIT_UNDEF_INT) return MemoryLocation{};
    return Error(Code::kInvalidArgument,
                 "compressor config: device is {}, but memory is not onebitMemoryDevice", device);
  }
  if (memory != onebitMemoryDevice) {
    return Error(
        Code::kInvalidArgument,
        "compressor config: memory is {}, but must be onebitMemoryHost or onebitMemoryDevice",
        memory);
  }
  ONEBIT_ASSIGN_OR_RETURN(const Devices* const devices, GetDevices());
  if (device == ONEBIT_UNDEF_INT) {
    ONEBIT_ASSIGN_OR_RETURN(const int current, devices->Current());
    return MemoryLocation{MemoryKind::kDevice, current};
  }
  if (device < 0 || device >= devices->count()) {
    return Error(Code::kInvalidArgument,
                 "compressor config: device is {}, but there are {} CUDA devices, counted from 0",
                 device, devices->count());
  }
  return MemoryLocation{MemoryKind::kDevice, device};
}

}  // namespace onebit
