// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA for tests, as an application uses it: through the driver's functions, which may be a GPU's
// or those of the stand-in. Errors throw.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <cuda.h>

#include "onebit/onebit.h"

namespace onebit::testing {

// Throws with CUDA's name of the error; `what` describes the operation.
void CheckCuda(CUresult result, const char* what);

// Makes the primary context of a device permanently current in this thread.
void UseCudaDevice(int device);
int CudaDeviceCount();

// Memory of the current device.
class CudaBuffer {
 public:
  explicit CudaBuffer(size_t bytes);
  // A copy of host memory, `shift` bytes after the start of the allocation.
  explicit CudaBuffer(std::span<const std::byte> content, size_t shift = 0);
  ~CudaBuffer();
  CudaBuffer(CudaBuffer&& other) noexcept;
  CudaBuffer& operator=(CudaBuffer&&) = delete;

  void* data() const { return reinterpret_cast<void*>(memory_ + shift_); }
  void Write(std::span<const std::byte> content);
  std::vector<std::byte> Read() const;

 private:
  CUdeviceptr memory_ = 0;
  size_t shift_ = 0;
  size_t bytes_ = 0;
};

class CudaStream {
 public:
  // CUDA clamps the priority; lower numbers come first.
  explicit CudaStream(int priority = 0);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  CUstream get() const { return stream_; }
  onebitStream_t handle() const { return stream_; }
  void Synchronize() const;
  bool IsIdle() const;

 private:
  CUstream stream_ = nullptr;
};

// Records a stream's work between the two calls, to be launched any number of times.
class CudaGraph {
 public:
  static void Begin(const CudaStream& stream);
  explicit CudaGraph(const CudaStream& stream);  // ends the capture
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void Launch(const CudaStream& stream) const;

 private:
  CUgraphExec graph_ = nullptr;
};

}  // namespace onebit::testing
