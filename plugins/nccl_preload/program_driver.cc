// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "plugins/nccl_preload/program_driver.h"

#include <dlfcn.h>

#include <cstring>

namespace onebit::preload {
namespace {

template <typename Function>
Function* FindInDriver(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

bool IsCaptured(Stream stream) {
  static auto* const is_capturing = FindInDriver<int(Stream, int*)>("cuStreamIsCapturing");
  int status = 0;
  return is_capturing != nullptr && is_capturing(stream, &status) == 0 && status != 0;
}

void* AllocatePinned(size_t bytes) {
  static auto* const allocate = FindInDriver<int(void**, size_t, unsigned)>("cuMemHostAlloc");
  constexpr unsigned kPortableAndMapped = 3;
  void* memory = nullptr;
  if (allocate == nullptr || allocate(&memory, bytes, kPortableAndMapped) != 0) return nullptr;
  std::memset(memory, 0, bytes);
  return memory;
}

void FreePinned(void* memory) {
  static auto* const free = FindInDriver<int(void*)>("cuMemFreeHost");
  if (free != nullptr && memory != nullptr) free(memory);
}

}  // namespace onebit::preload
