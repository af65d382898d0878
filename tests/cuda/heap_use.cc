// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Replaces operator new in the program and in all libraries that it loads.
#include "tests/cuda/heap_use.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr int kMostFrames = 32;

struct Record {
  bool is_counting = false;
  uint64_t count = 0;
  int frame_count = 0;  // of the first allocation
  void* frames[kMostFrames] = {};
};
constinit thread_local Record record;

const char* FileOf(void* frame) {
  Dl_info info;
  if (dladdr(frame, &info) == 0 || info.dli_fname == nullptr) return "";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash == nullptr ? info.dli_fname : slash + 1;
}

bool StartsWith(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

void Note() {
  if (!record.is_counting) return;
  record.is_counting = false;  // code below may allocate
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  for (int i = 0; i < count; ++i) {
    const char* const file = FileOf(frames[i]);
    if (StartsWith(file, "libcuda") || StartsWith(file, "libnccl")) break;
    if (!StartsWith(file, "libonebit")) continue;
    if (record.count++ == 0) {
      record.frame_count = count;
      std::memcpy(record.frames, frames, sizeof frames);
    }
    break;
  }
  record.is_counting = true;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  Note();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms call these.
void* operator new(std::size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace onebit::testing {

HeapUse::HeapUse() {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs
  record = {};
  record.is_counting = true;
}
HeapUse::~HeapUse() { record.is_counting = false; }

uint64_t HeapUse::count() const { return record.count; }

std::string HeapUse::first() const {
  record.is_counting = false;
  std::string text;
  char** const names = backtrace_symbols(record.frames, record.frame_count);
  for (int i = 0; names != nullptr && i < record.frame_count; ++i) {
    text += std::string(names[i]) + "\n";
  }
  std::free(names);
  record.is_counting = true;
  return text;
}

}  // namespace onebit::testing
