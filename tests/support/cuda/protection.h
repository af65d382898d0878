// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Device memory of the stand-in: ordinary memory that host threads must not touch.
#pragma once

#include <cstddef>

namespace onebit::testing::cuda {

// If `is_wanted`, and if processor and system support protection keys, gives device memory a key
// that no thread may use until it asks. Called once.
void StartProtection(bool is_wanted);
bool IsProtected();

// Grants or revokes the calling thread's access to device memory. Returns true if it had access.
bool SetAccess(bool is_allowed);

class DeviceMemoryAccess {
 public:
  explicit DeviceMemoryAccess(bool is_allowed) : before_(SetAccess(is_allowed)) {}
  DeviceMemoryAccess(const DeviceMemoryAccess&) = delete;
  DeviceMemoryAccess& operator=(const DeviceMemoryAccess&) = delete;
  ~DeviceMemoryAccess() { SetAccess(before_); }

 private:
  const bool before_;
};

// Maps memory at a multiple of 256 bytes that ends as close as possible to an inaccessible page.
// Its bytes are 0xff, which is not finite in any type. Returns null if there is no memory.
void* MapDeviceMemory(size_t bytes);
void UnmapDeviceMemory(void* memory, size_t bytes);

}  // namespace onebit::testing::cuda
