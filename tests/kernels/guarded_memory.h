// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Memory with inaccessible neighbours: an access beyond either end is a segmentation fault.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace onebit::kernels {

// The end of the guarded pages at which a buffer is placed.
enum class Edge { kLow, kHigh };

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t capacity) {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    capacity_ = (capacity + page_ - 1) / page_ * page_;
    void* base =
        mmap(nullptr, capacity_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap failed");
    base_ = static_cast<uint8_t*>(base);
    if (mprotect(base_ + page_, capacity_, PROT_READ | PROT_WRITE) != 0) {
      throw std::runtime_error("mprotect failed");
    }
  }
  ~GuardedMemory() { munmap(base_, capacity_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Returns `bytes` bytes that begin or end at a guard page.
  uint8_t* Place(size_t bytes, Edge edge) {
    if (bytes > capacity_) throw std::runtime_error("guarded memory is too small");
    return edge == Edge::kLow ? base_ + page_ : base_ + page_ + capacity_ - bytes;
  }

  template <class T>
  T* Place(const std::vector<T>& content, Edge edge) {
    uint8_t* at = Place(content.size() * sizeof(T), edge);
    if (!content.empty()) memcpy(at, content.data(), content.size() * sizeof(T));
    return reinterpret_cast<T*>(at);
  }

 private:
  size_t page_ = 0;
  size_t capacity_ = 0;
  uint8_t* base_ = nullptr;
};

}  // namespace onebit::kernels
