// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Pinned host memory through which dense calls on device memory go over a transport of the host.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/device_steps.h"
#include "collectives/engine.h"
#include "device/preallocated_buffer.h"

namespace onebit {

// Bytes of a call's buffers that it reads and writes on this rank.
struct BufferBytes {
  size_t input = 0;
  size_t output = 0;
};
BufferBytes BytesOf(const Engine::Request& request, int rank, int ranks);

// The buffers of one call or of one group at a time; grows, and never shrinks.
class DenseStaging {
 public:
  explicit DenseStaging(DeviceSteps& device) : device_(device) {}

  // Makes room for the dense requests among these that have device memory.
  Status Reserve(std::span<const Engine::Request> requests, int rank, int ranks);
  // The same before their turn, by another thread.
  Status Prepare(std::span<const Engine::Request> requests, int rank, int ranks);
  // Gives them host buffers in place of their own, with what they read. Waits for the device.
  Status BringIn(std::span<Engine::Request> requests, int rank, int ranks);
  // Copies what they wrote to where it belongs. Waits for the device.
  Status BringOut(std::span<const Engine::Request> originals,
                  std::span<const Engine::Request> staged, int rank, int ranks);

 private:
  Result<Memory> NewMemory(size_t bytes) const;

  DeviceSteps& device_;
  PreallocatedBuffer memory_;
};

}  // namespace onebit
