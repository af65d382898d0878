// SPDX-FileCopyrightText: The onebit authors
// SPDX-License-Identifier: Apache-2.0
// Computing steps of a plan on a device, for an executor that runs on the host: given out, and
// taken back when the device is done with them.
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

// Steps run in the order in which they are given, on a stream of their own. Packets lie in pinned
// memory, which kernels read and write in place. Nothing here allocates between Reserve and the
// next one. For one thread.
class DeviceSteps {
 public:
  static Result<std::unique_ptr<DeviceSteps>> Create(const Devices& devices, int device);
  ~DeviceSteps();

  const Devices& devices() const { return devices_; }
  int device() const { return device_; }
  // For copies before and after the steps, in order with them.
  onebitStream_t stream() const { return stream_.get(); }

  Status Reserve(const Plan& plan);
  // So that Reserve of a plan with so many elements allocates nothing; by another thread.
  Status Prepare(const Plan& plan, size_t tensor_elements);

  uint32_t outstanding() const { return static_cast<uint32_t>(given_ - taken_); }
  bool has_room() const { return outstanding() < kMostOutstanding; }
  // `index` is what Take tells of it.
  Status Give(const Call& call, const Step& step, uint32_t index);
  struct Done {
    uint32_t step = 0;
    bool is_finite = true;
  };
  // False if the device is not done with the one that was given first.
  Result<bool> Take(Done* done);
  // Waits until the device is done with all, and forgets them.
  void Drop();

  // What StepCompute does on the host: the checksum of what is held (waits for the device), and NaN
  // as the output (does not).
  Result<kernels::Checksum> HeldChecksum(const Call& call, uint32_t chunk);
  Status FillNan(const Call& call);
  // Waits until all on the stream is done.
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
  std::vector<uint32_t> steps_;      // ring: what was given
  Memory verdicts_;                  // pinned ring of words
  PreallocatedBuffer tile_sums_;     // of the device
  Memory checksum_;                  // of the device; one
  Memory checksum_copy_;             // pinned
  uint64_t given_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace onebit
