// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Replaces operator new and, on glibc without sanitizers, aligned_alloc and calloc.
#include "tests/support/allocation_failer.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/support/sanitizers.h"

namespace {

[[maybe_unused]] constexpr std::size_t kLeastOwn = 4096;

struct Plan {
  bool is_armed = false;
  bool is_lasting = false;
  bool has_struck = false;
  uint64_t before = 0;
};

// It needs no constructor and, in an executable, no allocation of its own, so allocations may use
// it.
constinit thread_local Plan plan;
constinit std::atomic<int64_t> live = 0;

// The plan for threads of a given name. Only set while its `is_armed` is false.
struct NamedPlan {
  std::atomic<bool> is_armed = false;
  std::atomic<bool> has_struck = false;
  std::atomic<int64_t> before = 0;
  bool is_lasting = false;
  const char* name = "";
};
constinit NamedPlan named;

bool IsNamed() {
  char name[16] = "";
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::strcmp(name, named.name) == 0;
}

bool IsToFail() {
  if (named.is_armed && IsNamed()) {
    const int64_t before = named.before--;
    if (before == 0) named.has_struck = true;
    return before == 0 || (before < 0 && named.is_lasting);
  }
  if (!plan.is_armed) return false;
  if (plan.has_struck) return plan.is_lasting;
  if (plan.before-- != 0) return false;
  plan.has_struck = true;
  return true;
}

#if defined(__GLIBC__) && !ONEBIT_HAS_SANITIZER
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);

void* AlignedMemory(std::size_t alignment, std::size_t bytes) {
  return __libc_memalign(alignment, bytes);
}

bool IsCodeOfUcx(void* address) {
  Dl_info found{};
  return dladdr(address, &found) != 0 && found.dli_fname != nullptr &&
         std::strstr(found.dli_fname, "/libuc") != nullptr;
}
#else
void* AlignedMemory(std::size_t alignment, std::size_t bytes) {
  return std::aligned_alloc(alignment, bytes);
}
#endif

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  if (IsToFail()) throw std::bad_alloc();
  // aligned_alloc requires a multiple of the alignment.
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? std::malloc(bytes == 0 ? 1 : bytes)
                                                               : AlignedMemory(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void Free(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

namespace onebit::testing {

FailingAllocations::FailingAllocations(uint64_t before, Shortage shortage) {
  plan = {.is_armed = true, .is_lasting = shortage == Shortage::kFromThenOn, .before = before};
}

FailingAllocations::~FailingAllocations() { plan.is_armed = false; }

bool FailingAllocations::has_struck() const { return plan.has_struck; }

FailingAllocationsOf::FailingAllocationsOf(const char* thread_name, uint64_t before,
                                           Shortage shortage) {
  named.name = thread_name;
  named.before = static_cast<int64_t>(before);
  named.is_lasting = shortage == Shortage::kFromThenOn;
  named.has_struck = false;
  named.is_armed = true;
}

FailingAllocationsOf::~FailingAllocationsOf() { named.is_armed = false; }

bool FailingAllocationsOf::has_struck() const { return named.has_struck; }

int64_t LiveAllocations() { return live; }

}  // namespace onebit::testing

// The other forms of operator new and delete call these, except those without exceptions, which
// sanitizers provide themselves.
void* operator new(std::size_t bytes) {
  return AllocateOrThrow(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }

#if defined(__GLIBC__) && !ONEBIT_HAS_SANITIZER
extern "C" {

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return IsToFail() ? nullptr : __libc_memalign(alignment, bytes);
}
// Small allocations come from glibc itself, for destructors of thread_local data, and it ends the
// process if they fail. UCX 1.13 does the same if one of its pools cannot grow.
void* calloc(std::size_t count, std::size_t bytes) {
  const bool is_ours = count * bytes >= kLeastOwn && (plan.is_armed || named.is_armed) &&
                       !IsCodeOfUcx(__builtin_return_address(0));
  return is_ours && IsToFail() ? nullptr : __libc_calloc(count, bytes);
}

}  // extern "C"
#endif
