// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Zeroed memory of the host or of a device, owned.
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
  // Host memory that every device reads and writes at the same address.
  static Result<Memory> CreatePinned(const Devices& devices, int device, size_t bytes,
                                     const char* purpose);
  // A copy in another place. Waits for the device.
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

  // Leaves the memory to whoever is still using it, for good.
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
  AlignedBuffer host_;                // what owns the bytes, in host memory that is not pinned
  const Devices* devices_ = nullptr;  // otherwise
  int device_ = 0;                    // likewise: of the context that knows it
  MemoryLocation location_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Working memory that grows and never shrinks. What it grew out of is kept until the end: to free
// memory may wait for all that devices are doing, which may wait for a rank whose thread this is,
// and captured graphs go on using it.
class GrowableBuffer {
 public:
  std::byte* data() const { return current_.data(); }
  size_t size() const { return current_.size(); }

  // Makes room for so many bytes, and for some more where it grows. `create` makes Memory of the
  // size that it is given.
  template <typename Create>
  Status Reserve(size_t bytes, Create create) {
    if (bytes <= size()) return OkStatus();
    former_.reserve(former_.size() + 1);
    ONEBIT_ASSIGN_OR_RETURN(Memory grown, create(std::max(bytes, 2 * size())));
    if (size() != 0) former_.push_back(std::move(current_));
    current_ = std::move(grown);
    return OkStatus();
  }

  // Memory::Release of all.
  void Release() {
    static_cast<void>(current_.Release());
    for (Memory& memory : former_) static_cast<void>(memory.Release());
  }

 private:
  Memory current_;
  std::vector<Memory> former_;
};

// Copies between memory of any two places. Waits until it is done; other streams of the device
// must be done with the memory.
Status CopyNow(const Devices& devices, int device, void* to, const void* from, size_t bytes);

}  // namespace onebit
