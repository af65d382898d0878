// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Owns zeroed memory of the host or of a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "device/devices.h"

namespace onebit {

// Move-only; empty when moved from or of size 0.
class Memory {
 public:
  Memory() = default;
  // `devices` is needed for memory of a device. `purpose` is named in the error.
  static Result<Memory> Create(const MemoryLocation& location, const Devices* devices, size_t bytes,
                               const char* purpose);
  // The same for work on streams: on a device that a communicator uses nobody waits for the zeroes,
  // so that only streams behind DeviceFills::Order may use the memory, and CopyNow, CopyTo and
  // Clear.
  static Result<Memory> CreateOrdered(const MemoryLocation& location, const Devices* devices,
                                      size_t bytes, const char* purpose);
  // Host memory that every device reads and writes at the same address.
  static Result<Memory> CreatePinned(const Devices& devices, int device, size_t bytes,
                                     const char* purpose);
  // Returns a copy at another location. Waits for the device.
  Result<Memory> CopyTo(const MemoryLocation& location, const Devices* devices,
                        const char* purpose) const;

  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(devices_, other.devices_);
    std::swap(device_, other.device_);
    std::swap(location_, other.location_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  // Leaks the memory on purpose, because something may still be using it.
  std::byte* Release() {
    devices_ = nullptr;
    bytes_ = 0;
    return std::exchange(data_, nullptr);
  }

  // Fills it with zeros. Waits for the device; nothing may be using the memory.
  Status Clear();
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  const MemoryLocation& location() const { return location_; }

 private:
  static Result<Memory> Allocate(int device, const Devices* devices, size_t bytes,
                                 const char* purpose);

  AlignedBuffer host_;                // owns pageable host memory
  const Devices* devices_ = nullptr;  // frees all other memory
  int device_ = 0;                    // whose context knows the memory
  MemoryLocation location_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Working memory that grows and never shrinks. Smaller blocks are kept until the end: captured
// graphs may use them, and freeing device memory may wait for device work that waits for this very
// thread.
class GrowableBuffer {
 public:
  std::byte* data() const { return current_.data(); }
  size_t size() const { return current_.size(); }

  // Grows to at least so many bytes, with some reserve. `create` makes Memory of a given size.
  template <typename Create>
  Status Reserve(size_t bytes, Create create) {
    if (bytes <= size()) return OkStatus();
    former_.reserve(former_.size() + 1);
    ONEBIT_ASSIGN_OR_RETURN(Memory grown, create(std::max(bytes, 2 * size())));
    if (size() != 0) former_.push_back(std::move(current_));
    current_ = std::move(grown);
    return OkStatus();
  }

  // Releases all blocks: see Memory::Release.
  void Release() {
    static_cast<void>(current_.Release());
    for (Memory& memory : former_) static_cast<void>(memory.Release());
  }

 private:
  Memory current_;
  std::vector<Memory> former_;
};

// Copies between any two locations and waits for the end. Other streams of the device must have
// finished with the memory.
Status CopyNow(const Devices& devices, int device, void* to, const void* from, size_t bytes);

}  // namespace onebit
