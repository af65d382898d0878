// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Working memory of one thread that another thread allocates concurrently.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "device/memory.h"

namespace onebit {

// Allocating memory for a device may wait for all work of the device, and so for streams that wait
// for the thread which uses this buffer. That thread must therefore never need to allocate.
class PreallocatedBuffer {
 public:
  // The thread that uses the buffer calls this, or any other while it is unused. Takes prepared
  // memory, and allocates only if none was prepared.
  std::byte* data() const { return buffer_.data(); }
  template <typename Create>
  Status Reserve(size_t bytes, Create create) {
    ONEBIT_TRY(buffer_.Reserve(bytes, [&](size_t grown) -> Result<Memory> {
      Memory found = Take(bytes);
      if (found.size() != 0) return found;
      return create(grown);
    }));
    size_.store(buffer_.size(), std::memory_order_relaxed);
    return OkStatus();
  }

  // The preparing thread calls this. A later Reserve of as many bytes does not allocate.
  template <typename Create>
  Status Prepare(size_t bytes, Create create) {
    if (bytes <= std::max(prepared_bytes_, size_.load(std::memory_order_relaxed))) {
      return OkStatus();
    }
    {
      // Reserves the list entry first: without it the memory would be freed, which waits as
      // allocating does.
      const std::lock_guard lock(mutex_);
      prepared_.reserve(prepared_.size() + 1);
    }
    ONEBIT_ASSIGN_OR_RETURN(Memory memory, create(std::max(bytes, 2 * prepared_bytes_)));
    const size_t size = memory.size();
    {
      const std::lock_guard lock(mutex_);
      prepared_.push_back(std::move(memory));
    }
    prepared_bytes_ = size;
    return OkStatus();
  }

 private:
  // Takes the smallest block that is large enough; empty if there is none. Blocks are ordered by
  // size.
  Memory Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(prepared_.begin(), prepared_.end(),
                                    [&](const Memory& memory) { return memory.size() >= bytes; });
    if (found == prepared_.end()) return Memory();
    Memory taken = std::move(*found);
    prepared_.erase(found);
    return taken;
  }

  GrowableBuffer buffer_;
  std::atomic<size_t> size_{0};  // size of buffer_; orders nothing else
  size_t prepared_bytes_ = 0;    // the preparing thread's
  std::mutex mutex_;             // guards prepared_
  std::vector<Memory> prepared_;
};

}  // namespace onebit
