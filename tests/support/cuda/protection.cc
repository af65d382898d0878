// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda/protection.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

namespace onebit::testing::cuda {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;

int key = -1;  // set once, before any device memory exists

size_t RoundUp(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

void StartProtection(bool is_wanted) {
  if (is_wanted) key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

bool IsProtected() { return key >= 0; }

bool SetAccess(bool is_allowed) {
  if (key < 0) return true;
  const bool before = pkey_get(key) == 0;
  if (before != is_allowed) pkey_set(key, is_allowed ? 0 : PKEY_DISABLE_ACCESS);
  return before;
}

void* MapDeviceMemory(size_t bytes) {
  const size_t padded = RoundUp(bytes, kAlignment);
  const size_t pages = RoundUp(padded, kPage);
  void* const mapping =
      mmap(nullptr, pages + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  const int protection = PROT_READ | PROT_WRITE;
  const int status = key >= 0 ? pkey_mprotect(mapping, pages, protection, key)
                              : mprotect(mapping, pages, protection);
  if (status != 0) {
    munmap(mapping, pages + kPage);
    return nullptr;
  }
  const DeviceMemoryAccess access(true);
  std::memset(mapping, 0xff, pages);
  return static_cast<std::byte*>(mapping) + (pages - padded);
}

void UnmapDeviceMemory(void* memory, size_t bytes) {
  const size_t padded = RoundUp(bytes, kAlignment);
  const size_t pages = RoundUp(padded, kPage);
  munmap(static_cast<std::byte*>(memory) - (pages - padded), pages + kPage);
}

}  // namespace onebit::testing::cuda
