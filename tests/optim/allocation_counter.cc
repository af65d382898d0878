// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.h"

#include <cstdlib>
#include <new>

namespace {

thread_local size_t allocation_count = 0;

void* CountedAllocation(size_t bytes, size_t alignment) {
  ++allocation_count;
  const size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size == 0 ? alignment : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

size_t onebit::testing::AllocationCount() { return allocation_count; }

void* operator new(size_t bytes) { return CountedAllocation(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return CountedAllocation(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedAllocation(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
