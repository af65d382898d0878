// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// SharedSegment: memory that two processes map, without a name that could stay behind.
#pragma once

#include <cstddef>
#include <string>

#include "comm/socket.h"

namespace onebit::sockets {

// Unmaps the memory at the end.
class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  // Makes memory of zeros and a descriptor of it for the other process. On failure the segment is
  // empty and *problem says why.
  static SharedSegment Create(size_t bytes, Descriptor* descriptor, std::string* problem);
  // Maps what another process has created. Refuses what that process could still shrink, because an
  // access beyond its end would end this process.
  static SharedSegment Map(const Descriptor& descriptor, size_t bytes, std::string* problem);

  bool is_mapped() const { return memory_ != nullptr; }
  std::byte* memory() const { return static_cast<std::byte*>(memory_); }
  size_t bytes() const { return bytes_; }

 private:
  SharedSegment(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}

  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace onebit::sockets
