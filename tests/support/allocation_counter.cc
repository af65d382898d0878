// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Replaces operator new and, on glibc without sanitizers, malloc, to count their calls.
#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "tests/support/sanitizers.h"

namespace {

// It needs no constructor and, in an executable, no allocation of its own, so malloc may use it.
constinit thread_local uint64_t allocations = 0;
constinit std::atomic<uint64_t> all_allocations = 0;

void Count() {
  ++allocations;
  all_allocations.fetch_add(1, std::memory_order_relaxed);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  Count();
  // aligned_alloc requires a multiple of the alignment.
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
                     ? std::malloc(bytes == 0 ? 1 : bytes)
                     : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace onebit::testing {

uint64_t AllocationsOfThisThread() { return allocations; }
uint64_t AllocationsOfAllThreads() { return all_allocations; }

}  // namespace onebit::testing

// The other forms of operator new and delete call these.
void* operator new(std::size_t bytes) {
  return AllocateOrThrow(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#if defined(__GLIBC__) && !ONEBIT_HAS_SANITIZER
extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"
#endif
