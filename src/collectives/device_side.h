// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// What an engine has once its calls work on the memory of a device over a transport of the host:
// compressed calls run there, step by step, dense ones in host memory to which they are copied.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/call_request.h"
#include "collectives/dense_staging.h"
#include "collectives/device_steps.h"
#include "collectives/plan_cache.h"
#include "device/preallocated_buffer.h"

namespace onebit {

class DeviceSide {
 public:
  static Result<std::unique_ptr<DeviceSide>> Create(const Comm& comm, const Devices& devices,
                                                    int device);

  DeviceSteps& steps() const { return *steps_; }
  std::byte* packets() const { return packets_.data(); }  // pinned
  Status Reserve(const Plan& plan);
  // Takes the memory that these calls need before their stream waits for the thread that runs them,
  // because CUDA may wait for streams when it allocates. For the thread that makes the calls, while
  // the other one may be running earlier ones. They are those of a group, or one alone.
  Status Prepare(std::span<const CallRequest> requests);

  // The same calls, dense ones with host buffers that have what they read.
  Result<std::span<const CallRequest>> BringIn(std::span<const CallRequest> requests);
  // Copies what they wrote to where it belongs.
  Status BringOut(std::span<const CallRequest> requests);
  Status FillNan(const Call& call);

 private:
  DeviceSide(const Comm& comm, std::unique_ptr<DeviceSteps> steps)
      : comm_(comm), steps_(std::move(steps)), staging_(*steps_, comm), planned_(comm) {}
  Result<Memory> NewPackets(size_t bytes) const;
  size_t PacketBytes(std::span<const CallRequest> requests);

  const Comm& comm_;
  const std::unique_ptr<DeviceSteps> steps_;
  DenseStaging staging_;
  PreallocatedBuffer packets_;
  std::vector<CallRequest> staged_;
  // Of the thread that makes the calls.
  PlanCache planned_;
  std::vector<CallBatch> batches_;
};

}  // namespace onebit
