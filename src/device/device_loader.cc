// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_loader.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>

#include "base/log.h"

namespace onebit {
namespace {

struct State {
  std::mutex mutex;
  bool is_settled = false;  // guarded by mutex: the driver is there, and `found` or `obstacle` say
  Status obstacle;          // guarded by mutex
  std::atomic<const Devices*> found{nullptr};
  // Objects the program had loaded when the driver was looked for last and was not there.
  std::atomic<uint64_t> objects_seen{0};
  std::atomic<bool> is_hopeless{false};
};

State& TheState() {
  // Never destroyed, as buffers may be freed after main; without the heap, as a first call needs
  // none.
  alignas(State) static std::byte storage[sizeof(State)];
  static State& state = *new (storage) State;
  return state;
}

// Advances when the program loads a shared object. The list's own lock is all that this takes.
uint64_t CountObjects() {
  uint64_t count = 0;
  const auto take = [](dl_phdr_info* info, size_t, void* out) {
    *static_cast<uint64_t*>(out) = info->dlpi_adds;
    return 1;  // the first entry says it already
  };
  dl_iterate_phdr(take, &count);
  return count;
}

bool IsDriverLoaded() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  dlclose(driver);  // the program's own use of it stays
  return true;
}

size_t SumOfParamBytes() {
  size_t sum = 0;
  for (const auto& entry : kernels::cuda::kKernels) sum += entry.param_bytes;
  return sum;
}

}  // namespace

const Devices* DeviceLoader::Find(Devices::FoldersFunction folders) {
  State& state = TheState();
  if (const Devices* found = state.found.load(std::memory_order_acquire)) return found;
  if (state.is_hopeless.load(std::memory_order_acquire)) return nullptr;
  const uint64_t objects = CountObjects();
  if (objects == state.objects_seen.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(state.mutex);
  if (state.is_settled) return state.found.load(std::memory_order_acquire);
  if (!IsDriverLoaded()) {
    state.objects_seen.store(objects, std::memory_order_release);
    return nullptr;
  }
  state.is_settled = true;
  auto opened = Open(folders);
  if (opened.ok()) {
    state.found.store(opened.value(), std::memory_order_release);
    return opened.value();
  }
  state.obstacle = opened.status();
  state.is_hopeless.store(true, std::memory_order_release);
  Log(LogLevel::kInfo, "CUDA is loaded, but its memory cannot be used: {}", state.obstacle.text());
  return nullptr;
}

Status DeviceLoader::Obstacle() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (!state.obstacle.ok()) return state.obstacle;
  return Error(Code::kInvalidUsage,
               "this program has not loaded CUDA's driver (libcuda.so.1), so there is no CUDA "
               "memory and no CUDA stream: make a call of CUDA first, such as cudaSetDevice, which "
               "also tells whether there are a driver and a device; without them use host memory");
}

Result<const Devices*> DeviceLoader::Open(Devices::FoldersFunction folders) {
  std::string path = kDeviceLibrary;
  for (const std::string& folder : folders()) {
    std::string candidate = folder + "/" + kDeviceLibrary;
    if (access(candidate.c_str(), F_OK) != 0) continue;
    path = std::move(candidate);
    break;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return Error(Code::kInvalidUsage,
                 "{} cannot be opened ({}); install it beside libonebit.so, or name its folder in "
                 "ONEBIT_PLUGIN_PATH",
                 kDeviceLibrary, reason == nullptr ? "no reason given" : reason);
  }
  const auto get = reinterpret_cast<DeviceGetFunction>(dlsym(library, kDeviceSymbol));
  if (get == nullptr) {
    return Error(Code::kInvalidUsage, "{} has no symbol {}", path, kDeviceSymbol);
  }
  return Start(get());
}

Result<const Devices*> DeviceLoader::Start(const DeviceFunctions* functions) {
  if (functions->struct_size != sizeof(DeviceFunctions) ||
      functions->abi_version != kDeviceAbiVersion ||
      functions->kernel_count != kernels::cuda::kKernelCount ||
      functions->kernel_param_sum != SumOfParamBytes()) {
    return Error(Code::kInvalidUsage,
                 "{} was built with another version of this library: install both from one build",
                 kDeviceLibrary);
  }
  int count = 0;
  if (const auto result = functions->Start(&count); result != onebitSuccess) {
    const char* const text = functions->LastError();
    return Error(static_cast<Code>(result), "{}", text == nullptr ? "CUDA cannot be used" : text);
  }
  return new Devices(functions, count);  // kept for ever, as callers keep pointers to it
}

}  // namespace onebit
