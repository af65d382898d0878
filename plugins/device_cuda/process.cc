// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/device_cuda/process.h"

#include <pthread.h>

#include <string>
#include <utility>

#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

// The result of Start; set once, and changed only by a fork.
struct Started {
  std::once_flag once;
  std::string failure;  // constant after `once`
  std::atomic<Process*> process{nullptr};
  std::atomic<bool> is_child{false};
};

// Never destroyed, because calls may come during process exit.
Started& TheStarted() {
  static Started* const started = new Started;
  return *started;
}

constexpr char kForked[] =
    "this process was forked from one that uses CUDA, which CUDA does not survive: start processes "
    "by exec, or fork before anything uses CUDA";

std::string FindDevices(const Driver& driver, int* count) {
  if (const CUresult error = driver.cuDeviceGetCount(count); error != CUDA_SUCCESS) {
    return Text("cuDeviceGetCount: {}", cuda::ErrorText(driver, error));
  }
  if (*count == 0) return "the CUDA driver sees no device (is CUDA_VISIBLE_DEVICES empty?)";
  for (int i = 0; i < *count; ++i) {
    CUdevice device = -1;
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS || device != i) {
      return Text("the CUDA driver calls its device {} number {}", i, device);
    }
  }
  return "";
}

void StartOnce(Started& started) {
  Driver driver;
  int device_count = 0;
  started.failure = StartDriver(&driver);
  if (started.failure.empty()) started.failure = FindDevices(driver, &device_count);
  if (!started.failure.empty()) return;
  if (pthread_atfork(nullptr, nullptr,
                     [] { TheStarted().is_child.store(true, std::memory_order_relaxed); }) != 0) {
    started.failure = "pthread_atfork: out of memory";
    return;
  }
  started.process.store(new Process(driver, device_count), std::memory_order_release);
}

}  // namespace

Device::~Device() {
  const LoadedContext* next = loaded_contexts.load(std::memory_order_relaxed);
  while (next != nullptr) delete std::exchange(next, next->next);
}

bool Device::HasLoaded(unsigned long long id) const {
  const LoadedContext* entry = loaded_contexts.load(std::memory_order_acquire);
  while (entry != nullptr && entry->id != id) entry = entry->next;
  return entry != nullptr;
}

void Device::AddLoaded(std::unique_ptr<LoadedContext> loaded) {
  loaded->next = loaded_contexts.load(std::memory_order_relaxed);
  loaded_contexts.store(loaded.release(), std::memory_order_release);
}

Process::Process(const Driver& driver, int device_count)
    : driver_(driver),
      device_count_(device_count),
      devices_(std::make_unique<Device[]>(static_cast<size_t>(device_count))) {}

onebitResult_t Start(int* device_count) {
  Started& started = TheStarted();
  if (started.is_child.load(std::memory_order_relaxed)) {
    return SetError(onebitUnhandledCudaError, kForked);
  }
  std::call_once(started.once, [&] { StartOnce(started); });
  if (!started.failure.empty()) return SetError(onebitUnhandledCudaError, started.failure);
  *device_count = started.process.load(std::memory_order_acquire)->device_count();
  return onebitSuccess;
}

Process* FindProcess() {
  Started& started = TheStarted();
  if (started.is_child.load(std::memory_order_relaxed)) return nullptr;
  return started.process.load(std::memory_order_acquire);
}

Process* RequireProcess() {
  Process* const process = FindProcess();
  if (process == nullptr) {
    SetError(onebitUnhandledCudaError, TheStarted().is_child.load(std::memory_order_relaxed)
                                           ? kForked
                                           : "Start was not called, or has failed");
  }
  return process;
}

}  // namespace onebit::device_cuda
