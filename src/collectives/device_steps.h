// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Runs computing steps of a plan on a device for an executor on the host, which hands them out and
// takes them back once the device has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/device_compute.h"
#include "collectives/step_compute.h"
#include "device/devices.h"
#include "device/memory.h"
#include "device/preallocated_buffer.h"

namespace onebit {

// Steps run in the order in which they are given, on a private stream. Packets lie in pinned
// memory, which kernels read and write directly. Between one Reserve and the next nothing here
// allocates. For one thread.
class DeviceSteps {
 public:
  static Result<std::unique_ptr<DeviceSteps>> Create(const Devices& devices, int device);
  ~DeviceSteps();

  const Devices& devices() const { return devices_; }
  int device() const { return device_; }
  // Copies before and after the steps use it, so that they are ordered.
  onebitStream_t stream() const { return stream_.get(); }

  Status Reserve(const Plan& plan);
  // Lets a later Reserve for a plan of this size allocate nothing. For another thread.
  Status Prepare(const Plan& plan, size_t tensor_elements);

  uint32_t outstanding() const { return static_cast<uint32_t>(submitted_ - taken_); }
  bool has_room() const { return outstanding() < kMostOutstanding; }
  // Take returns `index` when the step has finished.
  Status Submit(const Call& call, const Step& step, uint32_t index);
  struct Done {
    uint32_t step = 0;
    bool is_finite = true;
  };
  // False if the device has not finished the oldest step.
  Result<bool> Take(Done* done);
  // Waits until the device has finished all steps, and discards their results.
  void Drop();

  // Equivalents of StepCompute and of the host's NaN output. HeldChecksum waits for the device,
  // FillNan does not.
  Result<kernels::Checksum> HeldChecksum(const Call& call, uint32_t chunk);
  Status FillNan(const Call& call);
  // Waits for everything on the stream.
  Status Synchronize();

 private:
  static constexpr uint32_t kMostOutstanding = 16;

  DeviceSteps(const Devices& devices, int device) : devices_(devices), device_(device) {}
  KernelQueue queue() const;
  Result<Memory> NewSums(size_t bytes) const;

  const Devices& devices_;
  const int device_;
  DeviceStream stream_;
  std::vector<DeviceEvent> events_;  // ring
  std::vector<uint32_t> steps_;      // ring: their steps
  Memory verdicts_;                  // pinned ring of words
  PreallocatedBuffer tile_sums_;     // device memory
  Memory checksum_;                  // device memory; one checksum
  Memory checksum_copy_;             // pinned
  uint64_t submitted_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace onebit
