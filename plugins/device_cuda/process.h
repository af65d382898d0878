// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Process: the driver, the devices and the kernels, of which a process has one each.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "plugins/device_cuda/cuda_driver.h"
#include "plugins/device_cuda/cuda_kernels.h"

namespace onebit::device_cuda {

// A context in which the kernels are loaded. Ids are not used again, so an entry is true for ever.
struct LoadedContext {
  unsigned long long id;
  const LoadedContext* next;
};

// CUdevice is the number of the device: cuDeviceGet(i) gives i, which Start checks.
struct Device {
  ~Device();
  // No lock.
  bool HasLoaded(unsigned long long id) const;
  // Whether some context of it was entered; then `limits` is filled in.
  bool is_in_use() const { return loaded_contexts.load(std::memory_order_acquire) != nullptr; }
  // Under the mutex.
  void AddLoaded(std::unique_ptr<LoadedContext> loaded);

  // The primary context, once this plugin keeps it; never given back.
  std::atomic<CUcontext> primary{nullptr};
  // Whether kernels are loaded in `primary`, too.
  std::atomic<bool> is_primary_ready{false};
  // The last one that was added, which is changed under the mutex; entries are constant.
  std::atomic<const LoadedContext*> loaded_contexts{nullptr};

  std::mutex mutex;
  KernelLimits limits;  // written under the mutex before the first entry, then constant
};

// Any thread. Never destroyed: other threads may be in it while the process exits.
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

// DeviceFunctions::Start.
onebitResult_t Start(int* device_count);

// Null before Start and in a child of a fork, because CUDA does not work there.
Process* FindProcess();
// The same; null sets the text of an error.
Process* RequireProcess();

}  // namespace onebit::device_cuda
