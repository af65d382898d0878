// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// AlignedBuffer: owned, zeroed memory on a cache-line boundary.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/status.h"

namespace onebit {

inline constexpr size_t kCacheLine = 64;
// Buffers of at least this size ask for huge pages, so that passes over long tensors wait less for
// translations of addresses.
inline constexpr size_t kHugePage = size_t{1} << 21;

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Move-only; empty when moved from or of size 0.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // The error of a failed allocation names `purpose`.
  static Result<AlignedBuffer> Create(size_t bytes, const char* purpose) {
    AlignedBuffer buffer;
    if (bytes == 0) return buffer;
    const size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
    if (bytes > SIZE_MAX - kHugePage) {
      return Error(Code::kOutOfMemory, "{} of {} bytes is more than can be addressed", purpose,
                   bytes);
    }
    buffer.memory_.reset(std::aligned_alloc(alignment, RoundUp(bytes, alignment)));
    if (buffer.memory_ == nullptr) {
      return Error(Code::kOutOfMemory, "no memory for {} of {} bytes", purpose, bytes);
    }
    buffer.bytes_ = bytes;
    // A request, which may be ignored.
    if (bytes >= kHugePage) madvise(buffer.data(), bytes, MADV_HUGEPAGE);
    buffer.Clear();
    return buffer;
  }

  void Clear() {
    if (bytes_ != 0) std::memset(memory_.get(), 0, bytes_);
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  size_t size() const { return memory_ == nullptr ? 0 : bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace onebit
