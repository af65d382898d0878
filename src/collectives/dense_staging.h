// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Pinned host memory through which dense calls on device memory go over a transport of the host.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/device_steps.h"
#include "device/preallocated_buffer.h"

namespace onebit {

// Holds the buffers of one call or one group at a time; grows, and never shrinks.
class DenseStaging {
 public:
  DenseStaging(DeviceSteps& device, const Comm& comm) : device_(device), comm_(comm) {}

  // Makes room for the dense requests among these that have device memory.
  Status Reserve(std::span<const CallRequest> requests);
  // Takes the memory for a later Reserve, on another thread.
  Status Prepare(std::span<const CallRequest> requests);
  // Replaces their buffers by host buffers that have what they read. Waits for the device.
  Status BringIn(std::span<CallRequest> requests);
  // Copies what they wrote to where it belongs. Waits for the device.
  Status BringOut(std::span<const CallRequest> originals, std::span<const CallRequest> staged);

 private:
  size_t StagedBytes(std::span<const CallRequest> requests) const;
  Result<Memory> NewMemory(size_t bytes) const;

  DeviceSteps& device_;
  const Comm& comm_;
  PreallocatedBuffer memory_;
};

}  // namespace onebit
