// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs device-memory calls of an engine over a host transport: compressed ones step by step on the
// device, dense ones in host memory, to and from which their buffers are copied.
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
  // Allocates what these calls need, which are one call or a whole group. Runs before their stream
  // waits for the proxy thread, because CUDA may wait for streams when it allocates. For the
  // calling thread, while the proxy may be running earlier calls.
  Status Prepare(std::span<const CallRequest> requests);

  // Returns the same calls; dense ones with host buffers that hold their inputs.
  Result<std::span<const CallRequest>> StageIn(std::span<const CallRequest> requests);
  // Copies results of dense calls to the original buffers.
  Status StageOut(std::span<const CallRequest> requests);
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
  // Used by the calling thread only.
  PlanCache planned_;
  std::vector<CallBatch> batches_;
};

}  // namespace onebit
