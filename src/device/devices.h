// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The CUDA devices of this process, where it has any: found, checked, and called with errors as
// Status.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/device_abi.h"
#include "kernels/cuda/kernel_table.h"

namespace onebit {

// Location of a buffer: host memory, or memory of a device.
struct MemoryLocation {
  MemoryKind kind = MemoryKind::kHost;
  int device = 0;  // 0 for host memory

  bool is_device() const { return kind == MemoryKind::kDevice; }
  friend bool operator==(const MemoryLocation&, const MemoryLocation&) = default;
};

// Returns "host memory" or "memory of CUDA device 1".
std::string Describe(const MemoryLocation& location);

// The loaded libonebit-cuda.so. Thread-safe; lives until the process ends.
class Devices {
 public:
  // Folders in which the library is looked for before the system's path.
  using FoldersFunction = std::vector<std::string> (*)();

  // Looks whether the program has loaded CUDA's driver, and opens the library the first time that
  // is so. Null if it has not, and for good if the library cannot be opened; see Obstacle. Takes
  // the loader's lock until something is found.
  static const Devices* Find(FoldersFunction folders);
  // The same for a call on `buffer`, which does not look again for a buffer that was host memory
  // before: the calls of a training loop in a process without CUDA do not ask the loader, unless
  // their buffers begin where allocations of CUDA may. Null buffers need no devices.
  static const Devices* FindFor(const void* buffer, FoldersFunction folders);
  // Why Find returns null, and what the user can do about it.
  static Status Obstacle();

  int count() const { return count_; }
  const DeviceFunctions& functions() const { return *functions_; }

  Result<MemoryLocation> LocationOf(const void* pointer) const;
  Result<int> Current() const;

  // Converts the result of one of the functions to a Status; `what` describes the operation.
  Status Check(onebitResult_t result, const char* what) const;

  Status Launch(kernels::cuda::Kernel kernel, const void* params, onebitStream_t stream) const {
    return Check(functions_->Launch(static_cast<uint32_t>(kernel), params, stream),
                 "launch a kernel");
  }
  Status Copy(void* to, const void* from, size_t bytes, onebitStream_t stream) const {
    return bytes == 0 ? OkStatus()
                      : Check(functions_->Copy(to, from, bytes, stream), "copy memory");
  }
  Status Fill(void* memory, uint8_t value, size_t bytes, onebitStream_t stream) const {
    return bytes == 0 ? OkStatus()
                      : Check(functions_->Fill(memory, value, bytes, stream), "fill memory");
  }
  Status Record(void* event, onebitStream_t stream) const {
    return Check(functions_->RecordEvent(event, stream), "record an event");
  }
  Status Wait(onebitStream_t stream, void* event) const {
    return Check(functions_->WaitEvent(stream, event), "let a stream wait for an event");
  }
  Status WaitValue(onebitStream_t stream, const uint32_t* word, uint32_t value) const {
    return Check(functions_->WaitValue(stream, word, value), "let a stream wait for the host");
  }
  Status WriteValue(onebitStream_t stream, uint32_t* word, uint32_t value) const {
    return Check(functions_->WriteValue(stream, word, value), "let a stream write to the host");
  }
  Status Synchronize(onebitStream_t stream, uint64_t timeout_ms) const {
    return Check(functions_->Synchronize(stream, timeout_ms), "wait for a stream");
  }
  Result<bool> IsDone(void* event) const;
  Result<bool> IsCapturing(onebitStream_t stream) const;

 private:
  friend class DeviceLoader;
  Devices(const DeviceFunctions* functions, int count) : functions_(functions), count_(count) {}

  const DeviceFunctions* functions_;
  int count_;
};

// Makes a device current in this thread until the end of the scope.
class DeviceScope {
 public:
  static Result<DeviceScope> Enter(const Devices& devices, int device);
  DeviceScope(DeviceScope&& other) noexcept
      : devices_(std::exchange(other.devices_, nullptr)), token_(other.token_) {}
  DeviceScope& operator=(DeviceScope&&) = delete;
  ~DeviceScope() {
    if (devices_ != nullptr) devices_->functions().Leave(token_);
  }

 private:
  DeviceScope(const Devices& devices, uintptr_t token) : devices_(&devices), token_(token) {}

  const Devices* devices_;
  uintptr_t token_;
};

// A private stream that waits for no other. Move-only; null when moved from.
class DeviceStream {
 public:
  // Creates a stream on the current device.
  static Result<DeviceStream> Create(const Devices& devices);
  DeviceStream() = default;
  DeviceStream(DeviceStream&& other) noexcept { *this = std::move(other); }
  DeviceStream& operator=(DeviceStream&& other) noexcept {
    std::swap(devices_, other.devices_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~DeviceStream() {
    if (stream_ != nullptr) devices_->functions().DestroyStream(stream_);
  }

  onebitStream_t get() const { return stream_; }

 private:
  const Devices* devices_ = nullptr;
  onebitStream_t stream_ = nullptr;
};

// An event of the library's own. Move-only; null when moved from.
class DeviceEvent {
 public:
  static Result<DeviceEvent> Create(const Devices& devices);
  DeviceEvent() = default;
  DeviceEvent(DeviceEvent&& other) noexcept { *this = std::move(other); }
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(devices_, other.devices_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~DeviceEvent() {
    if (event_ != nullptr) devices_->functions().DestroyEvent(event_);
  }

  void* get() const { return event_; }

 private:
  const Devices* devices_ = nullptr;
  void* event_ = nullptr;
};

}  // namespace onebit
