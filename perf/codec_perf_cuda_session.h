// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// A CUDA device with the memory that all benchmarks share, and how launches on it are timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "device/devices.h"
#include "kernels/cuda/kernel_table.h"
#include "perf/common/cuda_device.h"

namespace onebit::perf {

// Not thread-safe.
class CudaSession {
 public:
  static constexpr size_t kFloatBuffers = 7;
  static constexpr size_t kPackets = 8;
  static constexpr size_t kPacketBlock = 4096;
  static constexpr size_t kMinBlock = 64;

  // Allocates buffers of `megabytes` MiB of fp32. Throws NoCudaError, or ToolError if the library's
  // CUDA plugin is missing.
  CudaSession(int device, size_t megabytes);

  size_t elements() const { return elements_; }
  size_t float_bytes() const { return elements_ * sizeof(float); }
  // Buffers that follow each other without a gap; ordinary fp32, until something is written there.
  float* Floats(size_t i) const { return reinterpret_cast<float*>(floats_.data()) + i * elements_; }
  const void* halves() const { return halves_.data(); }  // finite as fp16 and as bf16
  uint8_t* bits() const { return reinterpret_cast<uint8_t*>(bits_.data()); }
  float* scales() const { return reinterpret_cast<float*>(scales_.data()); }  // of kMinBlock
  kernels::Checksum* checksum() const {
    return reinterpret_cast<kernels::Checksum*>(words_.data());
  }
  uint32_t* faults() const { return reinterpret_cast<uint32_t*>(words_.data() + 64); }

  // kPackets packets, each scales of kPacketBlock, then bits.
  const std::byte* packets() const { return packets_.data(); }
  size_t packet_stride() const { return packet_scale_bytes() + bit_bytes(); }
  size_t packet_scale_bytes() const;
  size_t bit_bytes() const { return elements_ / 8; }

  // Enqueues a fill with a byte pattern: 0x3f makes every fp32 0.747.
  void Launch(kernels::cuda::Kernel kernel, const void* params) const;
  void Fill(float* floats, uint8_t byte) const { stream_.Fill(floats, byte, float_bytes()); }
  // Enqueues a copy of a buffer of fp32.
  void CopyOnDevice() const { stream_.Copy(Floats(kFloatBuffers - 1), Floats(0), float_bytes()); }

  // Enqueues `work` repeatedly and waits. Returns the device's seconds per run.
  double SecondsOf(int times, const std::function<void()>& work) const;
  // Waits. Returns true if a kernel has met a value that is not finite since the last call.
  bool HasFaults() const;

 private:
  const Devices& devices_;
  const size_t elements_;
  std::optional<DeviceScope> scope_;
  CudaStream stream_;
  CudaEvent begin_;
  CudaEvent end_;
  CudaBuffer floats_;
  CudaBuffer halves_;
  CudaBuffer bits_;
  CudaBuffer scales_;
  CudaBuffer packets_;
  CudaBuffer words_;
};

}  // namespace onebit::perf
