// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Pinned host memory that stages dense calls on device memory over a host transport.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/device_steps.h"
#include "device/preallocated_buffer.h"

namespace onebit {

// Holds the buffers of one call or one group at a time. Grows and never shrinks.
class DenseStaging {
 public:
  DenseStaging(DeviceSteps& device, const Comm& comm) : device_(device), comm_(comm) {}

  // Allocates for those of the requests that are dense and on device memory.
  Status Reserve(std::span<const CallRequest> requests);
  // Allocates for a later Reserve, on another thread.
  Status Prepare(std::span<const CallRequest> requests);
  // Replaces their buffers with host buffers that hold their inputs. Waits for the device.
  Status StageIn(std::span<CallRequest> requests);
  // Copies their results to the original buffers. Waits for the device.
  Status StageOut(std::span<const CallRequest> originals, std::span<const CallRequest> staged);

 private:
  size_t StagedBytes(std::span<const CallRequest> requests) const;
  Result<Memory> NewMemory(size_t bytes) const;

  DeviceSteps& device_;
  const Comm& comm_;
  PreallocatedBuffer memory_;
};

}  // namespace onebit
