// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// CUDA keeps a stack of contexts per thread, of which the top one is current. Enter pushes and
// Leave pops, which restores the previous state, even an empty stack.
#include "plugins/device_cuda/cuda_context.h"

#include <memory>
#include <utility>

#include "plugins/device_cuda/error.h"

namespace onebit::device_cuda {
namespace {

enum Token : uintptr_t { kLeftInPlace = 0, kPushed = 1 };

// Loads the kernels in the current context, which belongs to `device`, unless it has them already.
onebitResult_t LoadKernels(Process& process, Device& device, CUcontext context,
                           unsigned long long id) {
  const RelaxedCapture relaxed(process.driver());
  const std::lock_guard lock(device.mutex);
  if (!device.HasLoaded(id)) {
    auto loaded = std::make_unique<LoadedContext>(LoadedContext{id, nullptr});
    const bool is_first = device.loaded_contexts.load(std::memory_order_relaxed) == nullptr;
    ONEBIT_CUDA_TRY(process.kernels().LoadInCurrentContext(process.driver(),
                                                           is_first ? &device.limits : nullptr));
    device.AddLoaded(std::move(loaded));
  }
  if (context == device.primary.load(std::memory_order_relaxed)) {
    device.is_primary_ready.store(true, std::memory_order_release);
  }
  return onebitSuccess;
}

onebitResult_t IdOf(const Driver& driver, CUcontext context, unsigned long long* id) {
  return Check(driver, driver.cuCtxGetId(context, id), "cuCtxGetId");
}

// The first call creates the primary context, unless the program did, and retains it.
onebitResult_t RetainPrimary(Process& process, int number, CUcontext* context) {
  Device& device = process.device(number);
  *context = device.primary.load(std::memory_order_acquire);
  if (*context != nullptr) return onebitSuccess;
  const std::lock_guard lock(device.mutex);
  *context = device.primary.load(std::memory_order_relaxed);
  if (*context != nullptr) return onebitSuccess;
  const RelaxedCapture relaxed(process.driver());
  ONEBIT_CUDA_TRY(Check(process.driver(),
                        process.driver().cuDevicePrimaryCtxRetain(context, number),
                        "making the primary context of device {}", number));
  device.primary.store(*context, std::memory_order_release);
  return onebitSuccess;
}

// Handles a current context of device `number` that is not yet known as its primary one. Other
// contexts may be destroyed, and a later one may get the same handle, so each is identified by its
// id.
onebitResult_t EnterInPlace(Process& process, int number, CUcontext current) {
  const Driver& driver = process.driver();
  Device& device = process.device(number);
  unsigned long long id = 0;
  ONEBIT_CUDA_TRY(IdOf(driver, current, &id));
  if (device.HasLoaded(id)) return onebitSuccess;
  unsigned flags = 0;
  int is_active = 0;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuDevicePrimaryCtxGetState(number, &flags, &is_active),
                        "cuDevicePrimaryCtxGetState"));
  // A program with contexts of its own need not pay for another one.
  if (is_active != 0 && device.primary.load(std::memory_order_acquire) == nullptr) {
    CUcontext primary = nullptr;
    ONEBIT_CUDA_TRY(RetainPrimary(process, number, &primary));
  }
  return LoadKernels(process, device, current, id);
}

}  // namespace

onebitResult_t CurrentDevice(Process& process, int* device) {
  const Driver& driver = process.driver();
  CUcontext current = nullptr;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current == nullptr) {
    *device = 0;
    return onebitSuccess;
  }
  return Check(driver, driver.cuCtxGetDevice(device), "cuCtxGetDevice");
}

onebitResult_t Enter(Process& process, int number, uintptr_t* token) {
  if (number < 0 || number >= process.device_count()) {
    return Fail(onebitInvalidArgument, "there is no CUDA device {}: there are {}, counted from 0",
                number, process.device_count());
  }
  const Driver& driver = process.driver();
  Device& device = process.device(number);
  CUcontext current = nullptr;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  const bool is_ready = device.is_primary_ready.load(std::memory_order_acquire);
  const CUcontext known_primary = device.primary.load(std::memory_order_acquire);
  if (is_ready && current == known_primary) {
    *token = kLeftInPlace;
    return onebitSuccess;
  }
  if (current != nullptr) {
    CUdevice current_number = -1;
    ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetDevice(&current_number), "cuCtxGetDevice"));
    if (current_number == number) {
      *token = kLeftInPlace;
      return EnterInPlace(process, number, current);
    }
  }

  CUcontext primary = nullptr;
  ONEBIT_CUDA_TRY(RetainPrimary(process, number, &primary));
  CurrentContext pushed(driver, primary);
  ONEBIT_CUDA_TRY(Check(driver, pushed.result(), "cuCtxPushCurrent"));
  if (!is_ready) {
    unsigned long long id = 0;
    ONEBIT_CUDA_TRY(IdOf(driver, primary, &id));
    ONEBIT_CUDA_TRY(LoadKernels(process, device, primary, id));
  }
  pushed.Keep();
  *token = kPushed;
  return onebitSuccess;
}

void Leave(Process& process, uintptr_t token) {
  if (token != kPushed) return;
  CUcontext popped = nullptr;
  process.driver().cuCtxPopCurrent_v2(&popped);
}

onebitResult_t FindUsedContext(Process& process, CUcontext* context) {
  const Driver& driver = process.driver();
  int used = -1;
  for (int number = 0; number < process.device_count(); ++number) {
    Device& device = process.device(number);
    *context = device.primary.load(std::memory_order_acquire);
    if (*context != nullptr) return onebitSuccess;
    unsigned flags = 0;
    int is_active = 0;
    ONEBIT_CUDA_TRY(Check(driver, driver.cuDevicePrimaryCtxGetState(number, &flags, &is_active),
                          "cuDevicePrimaryCtxGetState"));
    if (is_active != 0) return RetainPrimary(process, number, context);
    if (used < 0 && device.is_in_use()) used = number;
  }
  // The program has its own context in some thread, but we cannot know which.
  return used < 0 ? onebitSuccess : RetainPrimary(process, used, context);
}

onebitResult_t FindCurrentDevice(Process& process, Device** device) {
  const Driver& driver = process.driver();
  CUcontext current = nullptr;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current == nullptr) {
    return Fail(onebitInvalidUsage, "no CUDA device is current: Enter was not called");
  }
  for (int number = 0; number < process.device_count(); ++number) {
    Device& candidate = process.device(number);
    if (candidate.is_primary_ready.load(std::memory_order_acquire) &&
        candidate.primary.load(std::memory_order_relaxed) == current) {
      *device = &candidate;
      return onebitSuccess;
    }
  }
  CUdevice number = -1;
  ONEBIT_CUDA_TRY(Check(driver, driver.cuCtxGetDevice(&number), "cuCtxGetDevice"));
  if (!process.device(number).is_in_use()) {
    return Fail(onebitInvalidUsage, "CUDA device {} is current, but was never entered", number);
  }
  *device = &process.device(number);
  return onebitSuccess;
}

}  // namespace onebit::device_cuda
