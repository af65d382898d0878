// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Process: the driver, the devices and the kernels, one set per process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "plugins/device_cuda/cuda_kernels.h"
#include "plugins/device_cuda/loaded_driver.h"

namespace onebit::device_cuda {

// A context in which the kernels are loaded. Ids are never reused, so an entry stays valid.
struct LoadedContext {
  unsigned long long id;
  const LoadedContext* next;
};

// CUdevice equals the number of the device: cuDeviceGet(i) gives i, which Start checks.
struct Device {
  ~Device();
  // Lock-free.
  bool HasLoaded(unsigned long long id) const;
  // True once a context of the device was entered; `limits` is filled in then.
  bool is_in_use() const { return loaded_contexts.load(std::memory_order_acquire) != nullptr; }
  // Requires the mutex.
  void AddLoaded(std::unique_ptr<LoadedContext> loaded);

  // The primary context once this plugin has retained it; never released.
  std::atomic<CUcontext> primary{nullptr};
  // True once kernels are loaded in `primary`.
  std::atomic<bool> is_primary_ready{false};
  // Head of a list, changed under the mutex; its entries are constant.
  std::atomic<const LoadedContext*> loaded_contexts{nullptr};

  std::mutex mutex;
  KernelLimits limits;  // written under the mutex before the first entry, then constant
};

// Thread-safe. Never destroyed: other threads may use it while the process exits.
class Process {
 public:
  Process(const Driver& driver, int device_count);

  const Driver& driver() const { return driver_; }
  int device_count() const { return device_count_; }
  Device& device(int number) { return devices_[static_cast<size_t>(number)]; }
  KernelLibrary& kernels() { return kernels_; }

 private:
  const Driver driver_;
  const int device_count_;
  const std::unique_ptr<Device[]> devices_;
  KernelLibrary kernels_;
};

// Implements DeviceFunctions::Start.
onebitResult_t Start(int* device_count);

// Null before Start, and in a forked child, because CUDA does not work there.
Process* FindProcess();
// Like FindProcess, but sets an error text before it returns null.
Process* RequireProcess();

}  // namespace onebit::device_cuda
