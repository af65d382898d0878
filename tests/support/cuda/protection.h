// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Device memory of the stand-in: ordinary memory that threads of the host may not touch.
#pragma once

#include <cstddef>

namespace onebit::testing::cuda {

// With `is_wanted`, and if the processor and the system have protection keys, device memory gets
// one that no thread has the right to use until it asks. Called once.
void StartProtection(bool is_wanted);
bool IsProtected();

// Gives the calling thread access to device memory or takes it away; returns whether it had it.
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

// Memory at a multiple of 256 bytes that ends as near as that allows to a page that nobody may
// touch. Its bytes are 0xff, which as numbers are not finite. Null: there is none.
void* MapDeviceMemory(size_t bytes);
void UnmapDeviceMemory(void* memory, size_t bytes);

}  // namespace onebit::testing::cuda
