// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// The part of CUDA that tools need: devices, their memory, a stream and events. The driver is
// loaded by the first use. Errors throw ToolError, or NoCudaError if there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "onebit/onebit.h"
#include "perf/common/tool_error.h"
#include "plugins/common/cuda_driver.h"

namespace onebit::perf {

// CUDA cannot be used: there is no driver, or no device.
class NoCudaError : public ToolError {
 public:
  explicit NoCudaError(const std::string& text) : ToolError(text) {}
};

int CudaDeviceCount();

struct CudaDeviceFacts {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  uint64_t memory_bytes = 0;
};
CudaDeviceFacts FactsOfCudaDevice(int number);

// Makes the primary context of a device, which the CUDA runtime uses as well, permanently current
// in this thread.
void UseCudaDevice(int number);

// Memory of the device that is current at construction. Move-only; empty when moved from. Any
// thread may free it.
class CudaBuffer {
 public:
  explicit CudaBuffer(size_t bytes);
  CudaBuffer() = default;
  CudaBuffer(CudaBuffer&& other) noexcept { *this = std::move(other); }
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(context_, other.context_);
    return *this;
  }
  // Waits until the device is idle.
  ~CudaBuffer();

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CUdeviceptr address_ = 0;
  CUcontext context_ = nullptr;
};

// A stream of the device that is current at construction. It does not wait for the legacy default
// stream.
class CudaStream {
 public:
  CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream();

  onebitStream_t get() const { return stream_; }

  // Enqueues a copy between any two of device memory and host memory. Host memory may be read or
  // changed after Synchronize.
  void Copy(void* to, const void* from, size_t bytes) const;
  void Fill(void* memory, uint8_t value, size_t bytes) const;

  bool IsDone() const;  // of all that was enqueued
  void Synchronize() const;

 private:
  onebitStream_t stream_ = nullptr;
  CUcontext context_ = nullptr;
};

// A point in a stream, timed by the device. It belongs to the device that is current at
// construction.
class CudaEvent {
 public:
  CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent();

  void Record(const CudaStream& stream) const;
  // Both events must have been reached.
  static double SecondsBetween(const CudaEvent& from, const CudaEvent& to);

 private:
  CUevent event_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace onebit::perf
