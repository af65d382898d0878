// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "device/device_loader.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/log.h"

namespace onebit {
namespace {

// Buffers that were host memory when they were looked at, with room for those of a training loop.
// relaxed: nothing is published through the slots, and a buffer that threads overwrite costs a
// look.
class HostBuffers {
 public:
  bool Contains(const void* buffer) const {
    const size_t first = SlotOf(buffer);
    for (size_t i = 0; i < kProbes; ++i) {
      if (slots_[(first + i) % kSlots].load(std::memory_order_relaxed) == buffer) return true;
    }
    return false;
  }

  // Takes a free slot, or that of another buffer if all that the address allows are taken.
  void Insert(const void* buffer) {
    const size_t first = SlotOf(buffer);
    size_t i = 0;
    while (i < kProbes && slots_[(first + i) % kSlots].load(std::memory_order_relaxed) != nullptr) {
      ++i;
    }
    slots_[(first + i % kProbes) % kSlots].store(buffer, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kSlots = 1024;
  static constexpr size_t kProbes = 8;

  // Mixes all bits: addresses differ by regular strides, which one multiplication would keep.
  static size_t SlotOf(const void* buffer) {
    uint64_t bits = reinterpret_cast<uintptr_t>(buffer);
    bits = (bits ^ bits >> 32) * 0x9E3779B97F4A7C15;
    bits = (bits ^ bits >> 29) * 0x9E3779B97F4A7C15;
    return (bits >> 32) % kSlots;
  }

  std::array<std::atomic<const void*>, kSlots> slots_{};
};

struct State {
  std::mutex mutex;
  Status obstacle;  // guarded by mutex
  std::atomic<const Devices*> found{nullptr};
  std::atomic<bool> is_hopeless{false};   // there is an obstacle, which stays
  std::atomic<uint64_t> objects_seen{0};  // CountObjects when there was nothing new
  HostBuffers host_buffers;
};

State& TheState() {
  // Never destroyed, because buffers may be freed after main. In static storage, because a first
  // call must not need the heap.
  alignas(State) static std::byte storage[sizeof(State)];
  static State& state = *new (storage) State;
  return state;
}

// Advances when the program loads a shared object. Takes some 10 ns, because it looks at one entry
// only, while dlopen searches folders.
uint64_t CountObjects() {
  uint64_t count = 0;
  const auto take = [](dl_phdr_info* info, size_t, void* out) {
    *static_cast<uint64_t*>(out) = info->dlpi_adds;
    return 1;  // every entry has the same count
  };
  dl_iterate_phdr(take, &count);
  return count;
}

bool IsDriverLoaded() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  dlclose(driver);  // the program's own reference keeps it loaded
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
  if (state.is_hopeless.load(std::memory_order_relaxed)) return nullptr;
  const uint64_t objects = CountObjects();
  if (objects == state.objects_seen.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(state.mutex);
  const bool is_settled = state.found.load(std::memory_order_relaxed) != nullptr ||
                          state.is_hopeless.load(std::memory_order_relaxed);
  if (is_settled || !IsDriverLoaded()) {
    state.objects_seen.store(objects, std::memory_order_release);
    return state.found.load(std::memory_order_relaxed);
  }
  auto opened = Open(folders);
  if (opened.ok()) {
    state.found.store(opened.value(), std::memory_order_release);
    return opened.value();
  }
  state.obstacle = opened.status();
  state.is_hopeless.store(true, std::memory_order_relaxed);
  Log(LogLevel::kInfo, "CUDA is loaded, but its memory cannot be used: {}", state.obstacle.text());
  return nullptr;
}

const Devices* DeviceLoader::FindFor(const void* buffer, Devices::FoldersFunction folders) {
  State& state = TheState();
  if (const Devices* found = state.found.load(std::memory_order_acquire)) return found;
  if (buffer == nullptr) return nullptr;
  // Memory that the program gives back may come again from CUDA, whose allocations all begin at a
  // multiple of 256 bytes: such an address is never remembered. An address inside an allocation may
  // be, if the program used the same one before it loaded CUDA: it counts as host memory until a
  // call with another address finds CUDA.
  constexpr uintptr_t kCudaAlignment = 256;
  if (reinterpret_cast<uintptr_t>(buffer) % kCudaAlignment == 0) return Find(folders);
  if (state.host_buffers.Contains(buffer)) return nullptr;
  const Devices* const found = Find(folders);
  if (found == nullptr) state.host_buffers.Insert(buffer);
  return found;
}

Status DeviceLoader::Obstacle() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  if (!state.obstacle.ok()) return state.obstacle;
  return Error(Code::kInvalidUsage,
               "this program has not loaded CUDA's driver (libcuda.so.1), so there is no CUDA "
               "memory and no CUDA stream: make a CUDA call first, such as cudaSetDevice, which "
               "also shows whether there is a driver and a device; without them use host memory");
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
                 "{} cannot be opened ({}); install it next to libonebit.so, or name its folder in "
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
  return new Devices(functions, count);  // never freed, because callers keep pointers to it
}

}  // namespace onebit
