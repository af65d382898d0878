// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What an engine has once its calls work on the memory of a device: compressed calls there, step by
// step, dense ones in host memory to which they are brought.
#pragma once

#include <memory>
#include <vector>

#include "collectives/dense_staging.h"
#include "collectives/device_steps.h"
#include "collectives/packet_needs.h"
#include "device/preallocated_buffer.h"

namespace onebit {

struct DeviceSide {
  DeviceSide(std::unique_ptr<DeviceSteps> device_steps, const Comm& comm)
      : steps(std::move(device_steps)), staging(*steps), needs(comm) {}

  std::unique_ptr<DeviceSteps> steps;
  DenseStaging staging;
  PreallocatedBuffer packets;  // pinned
  // The requests of a group, or a single one, with host buffers where they are staged.
  std::vector<Engine::Request> staged;
  PacketNeeds needs;  // of the thread that makes the calls
};

}  // namespace onebit
