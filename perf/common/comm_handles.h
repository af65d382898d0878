// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Owners of the library's handles, and of buffers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "onebit/onebit.h"

namespace onebit::perf {

struct CommDestroyer {
  void operator()(onebitComm_t comm) const { onebitCommDestroy(comm); }
};
using CommHandle = std::unique_ptr<std::remove_pointer_t<onebitComm_t>, CommDestroyer>;

struct CompressorDestroyer {
  void operator()(onebitCompressor_t compressor) const { onebitCompressorDestroy(compressor); }
};
using CompressorHandle =
    std::unique_ptr<std::remove_pointer_t<onebitCompressor_t>, CompressorDestroyer>;

// Page-aligned memory. The constructor does not touch it, so its pages are placed near the thread
// that writes first.
class Buffer {
 public:
  explicit Buffer(size_t bytes = 0) {
    constexpr size_t kPage = 4096;
    if (bytes == 0) return;
    memory_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)));
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace onebit::perf
